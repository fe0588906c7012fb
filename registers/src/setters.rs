//! Setters for extensible option structs, which are created by `default` and changed by one setter per field.

/// Defines a setter for each named field: `field: Type;`, or `field: Type => Some;` for an optional one.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    (impl $options:ty { $($(#[$doc:meta])* $field:ident: $kind:ty $(=> $wrap:path)?;)* }) => {
        impl $options {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $crate::setters!(@value $field $(, $wrap)?);
                    self
                }
            )*
        }
    };
    (@value $value:expr) => { $value };
    (@value $value:expr, $wrap:path) => { $wrap($value) };
}
