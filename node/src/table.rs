//! Native values that JavaScript knows by numbers.
//!
//! A number costs a function of JavaScript much less than an instance of a native class: napi-rs checks each instance,
//! and lends it out under a lock. Each thread has a table of its own, as each environment has a thread of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::thread::LocalKey;

/// The values of one thread and the number that was given last.
#[derive(Debug)]
pub(crate) struct Table<T>(RefCell<(i64, BTreeMap<i64, T>)>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Drop for Table<T> {
    /// The end of the thread. What is left is of an environment that was not torn down, because the process is exiting:
    /// its values must not use other thread-locals, which may be gone, nor an environment that does not run any more.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0.get_mut().1));
    }
}

impl<T: Clone + 'static> Table<T> {
    /// Returns the value with this number.
    pub(crate) fn get(table: &'static LocalKey<Self>, number: i64) -> napi::Result<T> {
        let value = table.with(|table| table.0.borrow().1.get(&number).cloned());
        value.ok_or_else(|| napi::Error::from_reason("bug in redlock: a number without a value"))
    }
}

/// The only owner of a value in a table. The value is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Numbered<T: 'static> {
    table: &'static LocalKey<Table<T>>,
    number: i64,
}

impl<T> Numbered<T> {
    /// Adds `value` to `table`.
    pub(crate) fn new(table: &'static LocalKey<Table<T>>, value: T) -> Self {
        let number = table.with(|table| {
            let (last, values) = &mut *table.0.borrow_mut();
            *last += 1;
            values.insert(*last, value);
            *last
        });
        Self { table, number }
    }

    /// Returns the number of the value.
    pub(crate) fn number(&self) -> i64 {
        self.number
    }
}

impl<T> Drop for Numbered<T> {
    fn drop(&mut self) {
        // At the end of the thread, the table may be gone already. The value is dropped outside the borrow.
        let value = self.table.try_with(|table| table.0.borrow_mut().1.remove(&self.number));
        drop(value);
    }
}
