//! The stable texts of values that have no content, and of those whose content is not shown.

/// Makes the method of an enum that returns the text of each value, and its `Display`, which writes it; with `all`, also the
/// list of all values.
macro_rules! texts {
    (
        $name:ident,
        $(#[$of_all:meta])* $shown:vis all,
        $(#[$of_text:meta])* $text:ident: $($variant:ident = $value:literal),+ $(,)?
    ) => {
        impl $name {
            $(#[$of_all])*
            $shown const ALL: [Self; [$($value),+].len()] = [$(Self::$variant),+];
        }

        $crate::texts::texts! { $name: $(#[$of_text])* $shown $text: $($variant = $value),+ }
    };
    ($name:ident: $(#[$of_text:meta])* $shown:vis $text:ident: $($variant:ident = $value:literal),+ $(,)?) => {
        impl $name {
            $(#[$of_text])*
            #[must_use]
            $shown const fn $text(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str((*self).$text())
            }
        }
    };
}
pub(crate) use texts;

/// Makes the `Debug` of types whose content is secret, or cannot be shown: their name alone.
macro_rules! opaque {
    ($type:ident $(<$($parameter:ident),+>)?) => {
        impl $(<$($parameter),+>)? std::fmt::Debug for $type $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use opaque;
