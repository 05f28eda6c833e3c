//! The shapes of locks: one name, several names, a semaphore's name and permits, an election's name, or those of a
//! detached lock.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use redlock::bindings::lock_object::{LockObject, term};
use redlock::{Fixed, Lock, Redlock};

use crate::convert::{self, Name, names, permits};

/// A shape that is more than a name.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Shape(Kind);

#[derive(Debug)]
enum Kind {
    Several(Vec<Name>),
    Semaphore(Name, u32),
    /// The name of an election, whose terms the lock holds.
    Term(Name),
    /// The text of a detached lock.
    Detached(String),
}

#[pymethods]
impl Shape {
    /// Make the shape of a lock of several names.
    #[staticmethod]
    fn several(#[pyo3(from_py_with = names)] names: Vec<Name>) -> Self {
        Self(Kind::Several(names))
    }

    /// Make the shape of a semaphore.
    #[staticmethod]
    fn semaphore(name: Name, #[pyo3(from_py_with = permits)] permits: u32) -> Self {
        Self(Kind::Semaphore(name, permits))
    }

    /// Make the shape of the locks of an election's terms.
    #[staticmethod]
    fn term(name: Name) -> Self {
        Self(Kind::Term(name))
    }

    /// Make the shape of a lock that attaches the detached lock with this text.
    #[staticmethod]
    fn detached(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(Kind::Detached(convert::text("text", "text", text, "the str that detach has returned")?)))
    }

    // It may have the text, which is a credential.
    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __repr__(&self) -> &'static str {
        "<redlock._native.Shape>"
    }
}

/// What a lock is made from.
#[derive(Debug)]
pub(crate) enum Given<'py> {
    Name(Name),
    Shape(Bound<'py, Shape>),
}

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.cast::<Shape>() {
            Ok(shape) => Ok(Self::Shape(shape.to_owned())),
            Err(_) => given.extract().map(Self::Name),
        }
    }
}

impl Given<'_> {
    /// Returns a lock of this shape.
    pub(crate) fn lock(&self, client: &Redlock) -> Lock<Fixed> {
        match self {
            Self::Name(name) => client.lock(&name.bytes).into(),
            Self::Shape(shape) => match &shape.get().0 {
                Kind::Several(names) => client.lock_all(names.iter().map(|name| &name.bytes)),
                Kind::Semaphore(name, permits) => client.semaphore(&name.bytes, *permits),
                Kind::Term(name) => term(client, &name.bytes),
                Kind::Detached(text) => client.attach(text),
            },
        }
    }

    /// Returns the names of `object`, which has this shape.
    pub(crate) fn title(self, py: Python<'_>, object: &LockObject) -> PyResult<Title> {
        match self {
            Self::Name(name) => Ok(Title::of(name.given)),
            Self::Shape(shape) => match &shape.get().0 {
                Kind::Term(name) => Ok(Title::of(name.given.clone_ref(py))),
                Kind::Several(names) => Title::of_several(py, names, &object.names()),
                Kind::Semaphore(name, permits) => {
                    Ok(Title { permits: Some(*permits), ..Title::of(name.given.clone_ref(py)) })
                }
                Kind::Detached(_) => Title::of_detached(py, object),
            },
        }
    }
}

/// The names and permits of a lock, as they were given.
#[derive(Debug)]
pub(crate) struct Title {
    /// The name, or several names in one.
    pub(crate) name: Py<PyAny>,
    /// `None` if there is only one.
    names: Option<Py<PyTuple>>,
    /// `None` for a lock that is not a semaphore.
    pub(crate) permits: Option<u32>,
}

impl Title {
    fn of(name: Py<PyAny>) -> Self {
        Self { name, names: None, permits: None }
    }

    /// Returns the title for the names of `object`, which nobody has given.
    fn of_detached(py: Python<'_>, object: &LockObject) -> PyResult<Self> {
        let shown = |bytes: &&[u8]| match str::from_utf8(bytes) {
            Ok(text) => PyString::new(py, text).into_any().unbind(),
            Err(_) => PyBytes::new(py, bytes).into_any().unbind(),
        };
        let names = object.names();
        let given: Vec<Name> = names.iter().map(|bytes| Name { given: shown(bytes), bytes: bytes.to_vec() }).collect();
        Self::of_several(py, &given, &names)
    }

    /// Returns the title for `distinct` names, each of which is among the `given` ones.
    fn of_several(py: Python<'_>, given: &[Name], distinct: &[&[u8]]) -> PyResult<Self> {
        let of = |bytes: &&[u8]| given.iter().find(|name| name.bytes == *bytes);
        let names: Vec<_> = distinct.iter().filter_map(of).map(|name| name.given.bind(py)).collect();
        if let [name] = names[..] {
            return Ok(Self::of(name.clone().unbind()));
        }
        let joined = distinct.join(&b", "[..]);
        let name = if names.iter().all(|name| name.is_instance_of::<PyString>()) {
            PyString::new(py, &String::from_utf8_lossy(&joined)).into_any().unbind()
        } else {
            PyBytes::new(py, &joined).into_any().unbind()
        };
        Ok(Self { name, names: Some(PyTuple::new(py, names)?.unbind()), permits: None })
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let names = self.names.as_ref().map(|names| names.clone_ref(py));
        Self { name: self.name.clone_ref(py), names, permits: self.permits }
    }

    /// Returns all names.
    pub(crate) fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.names {
            Some(names) => Ok(names.bind(py).clone()),
            None => PyTuple::new(py, [&self.name]),
        }
    }

    /// Writes the names as Python does.
    pub(crate) fn shown(&self, py: Python<'_>) -> PyResult<String> {
        let name = match &self.names {
            Some(names) => names.bind(py).as_any(),
            None => self.name.bind(py),
        };
        Ok(name.repr()?.to_string())
    }
}
