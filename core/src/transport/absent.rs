//! The methods of a type without values, which stands for what a build leaves out.

/// Makes methods of a type without values. They take arguments of these types, and cannot be called.
macro_rules! absent {
    ($($shown:vis fn $name:ident($($argument:ty),*) $(-> $output:ty)?;)+) => {$(
        $shown fn $name(&self, $(_: $argument),*) $(-> $output)? {
            match *self {}
        }
    )+};
}
pub(crate) use absent;
