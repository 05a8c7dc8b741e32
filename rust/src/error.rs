//! What can be wrong with what we are given.
//!
//! A copy that stays is no error, it is a [`crate::reasons::KeepReason`]. An error means that the input cannot be
//! understood; each variant has a code that scripts may rely on.

use std::fmt;
use std::io;

use crate::pt2::fault::Fault;

/// An input that is refused. `Display` begins with the thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A [`crate::problem::Problem`] contradicts itself: a front end made a mistake, or the program is invalid.
    InvalidProblem(String),
    /// The textual form of a problem does not parse.
    Syntax {
        /// One-based line.
        line: usize,
        /// What was expected.
        message: String,
    },
    /// A file is refused.
    Archive {
        /// What kind of refusal it is.
        fault: Fault,
        /// What is wrong, beginning with the place.
        detail: String,
    },
    /// The operating system says no.
    Io {
        /// The kind of the operating system's error.
        kind: io::ErrorKind,
        /// Its text.
        message: String,
    },
}

impl Error {
    /// The same error, with the place where it is.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        let within = |text| format!("{place}: {text}");
        match self {
            Error::InvalidProblem(message) => Error::InvalidProblem(within(message)),
            Error::Syntax { line, message } => Error::Syntax { line, message: within(message) },
            Error::Archive { fault, detail } => Error::Archive { fault, detail: within(detail) },
            Error::Io { kind, message } => Error::Io { kind, message: within(message) },
        }
    }

    /// The stable code of this kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::InvalidProblem(_) => "invalid_problem",
            Error::Syntax { .. } => "syntax",
            Error::Archive { fault, .. } => fault.as_str(),
            Error::Io { .. } => "io",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidProblem(message) | Error::Io { message, .. } => f.write_str(message),
            Error::Archive { detail, .. } => f.write_str(detail),
            Error::Syntax { line, message } => write!(f, "line {line}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
