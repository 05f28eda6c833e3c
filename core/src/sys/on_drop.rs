//! The end of something that lasts until a value is dropped, also by a panic.

/// Calls what it was made with when it is dropped.
#[must_use = "it ends at once when this is dropped"]
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) const fn new(end: F) -> Self {
        Self(Some(end))
    }

    /// Does not call it.
    pub(crate) fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}
