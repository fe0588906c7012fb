//! Setters for extensible option structs, which are created by `default` and changed by one setter per field.

macro_rules! setters {
    (impl $options:ty { $($(#[$doc:meta])* $field:ident: $kind:ty;)* }) => {
        impl $options {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
