//! Options are structs that can grow: made by `default`, changed by one setter per field.

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
