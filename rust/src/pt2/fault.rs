//! Why a file is refused: one stable code for each reason, so that a batch over thousands of files can count them.

use std::fmt;
use std::io;

use crate::error::Error;

macro_rules! faults {
    ($($variant:ident $code:literal $doc:literal)*) => {
        /// What is wrong with a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $doc] $variant,)*
        }

        impl Fault {
            /// Every fault, for the test that each is documented.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant),*];

            /// The code as users see it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Fault::$variant => $code,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Fault::$variant => $doc,)* }
            }
        }
    };
}

faults! {
    Truncated "truncated" "the file ends before its contents do"
    BadZip "bad_zip" "the zip directory contradicts itself"
    Overlap "overlapping_entries" "two zip entries claim the same bytes"
    FalseSize "false_size" "a zip entry is not as long as it says"
    DuplicateEntry "duplicate_entry" "two zip entries have the same name"
    UnsafeName "unsafe_name" "the name of a zip entry leads out of the archive"
    TooLarge "too_large" "more than this tool is ready to hold in memory"
    Compressed "compressed_graph" "the graph is compressed: load and save the program with torch first"
    Checksum "checksum" "the contents do not have the checksum that the directory states"
    NotUtf8 "not_utf8" "the graph is no UTF-8 text"
    BadJson "bad_json" "the graph is not the JSON that torch writes"
    SchemaVersion "schema_version" "the schema is older or newer than those that are understood: 8.x"
    UnknownArgument "unknown_argument" "an argument of a kind that this version does not know: update mutcanon"
    DuplicateName "duplicate_name" "two values of a graph have the same name"
    UnknownName "unknown_name" "a graph uses a value before it is defined, or one that does not exist"
    MalformedNode "malformed_node" "an `aten.copy` of something that is no tensor"
    Signature "signature_mismatch" "the signature and the outputs of the graph do not agree"
    UnknownTarget "unknown_target" "a mutation of something that is no input"
    Internal "internal" "our own result did not pass the checks, and was thrown away: please report this"
}

impl Fault {
    /// An error of this kind; `detail` begins with the thing that is wrong.
    #[must_use]
    pub fn at(self, detail: impl fmt::Display) -> Error {
        Error::Archive { fault: self, detail: format!("{detail}: {}", self.sentence()) }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated.at("the file"),
            kind => {
                // Its number is for nobody: the code is ours, and the kind says which exception it is in Python.
                let text = error.to_string();
                let message = text.split(" (os error ").next().unwrap_or_default().into();
                Error::Io { kind, message }
            }
        }
    }
}
