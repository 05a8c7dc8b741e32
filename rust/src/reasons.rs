//! Why a copy stays. A copy that stays is a normal outcome, and the user is told what was missing.

use std::fmt;

use crate::ids::ValueId;

macro_rules! codes {
    ($(#[$about:meta])* $name:ident: $($variant:ident $code:literal $section:literal $doc:literal)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = concat!($doc, " (semantics ", $section, ")")] $variant,)*
        }

        impl $name {
            /// Every code, for the test that each is documented and has a fixture.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The code as users see it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $code,)* }
            }

            /// The section of the semantics that this code carries out.
            #[must_use]
            pub fn section(self) -> &'static str {
                match self { $($name::$variant => $section,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $($name::$variant => $doc,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

codes! {
    /// The stable code of a reason; semantics sections in the variants' documentation.
    Code:
    Cast "cast" "3.1" "the copy changes the element type"
    Device "device" "3.1" "the copy moves to another device"
    TensorLayout "tensor_layout" "3.5" "a sparse, nested or subclass tensor takes part"
    Broadcast "broadcast" "3.2" "the copy changes the shape"
    Strides "strides" "3.3" "the copy changes the strides"
    Quantizer "quantizer" "3.4" "the quantizers are not proved equal"
    LazyBits "lazy_bits" "3.5" "the conjugation or negation bits differ"
    UnprovedSize "unproved_size" "3.6" "symbolic sizes are not proved equal"
    UnprovedStride "unproved_stride" "3.6" "symbolic strides are not proved equal"
    NoMetadata "no_metadata" "3.7" "a value has no tensor metadata"
    NonBlocking "non_blocking" "4.7" "the copy may be asynchronous"
    WrittenInPlace "written_in_place" "4.7" "the graph writes the storage in place, so the copy may hold an older value"
    SharedValue "shared_value" "4.1" "the value already belongs to another mutation"
    Snapshot "snapshot" "4.2" "the value shares storage with a target that may be overwritten first"
    PlaceholderValue "placeholder_value" "4.3" "the value would be another placeholder of the target's kind, and some consumers drop that write-back"
    Overlap "overlap" "4.4" "the value is another view of the target itself"
    OutputOrder "output_order" "4.4" "the value would be the target itself, which some consumers return after the outputs that they write"
    UserOutput "user_output" "4.5" "a user output would share storage with an input"
    OutputAlias "output_alias" "4.5" "two user outputs would share storage"
    SubgraphBoundary "subgraph_boundary" "4.6" "an input or output of a control-flow body would be aliased"
    ValueAndOutput "value_and_output" "4.8" "a user output would become the same tensor as the mutation's value"
}

codes! {
    /// Why a node is not computed in place; semantics sections in the variants' documentation.
    InPlaceCode:
    ReadLater "read_later" "5.b" "a later node reads the old value"
    Returned "returned" "5.b" "a user output is the old value"
    WrittenBackLater "written_back_later" "5.b" "another mutation is written back from the old value too late"
    Operand "operand" "5.b" "the node reads the storage through another operand while it writes"
    View "view" "5.b" "a view takes part, so which storage would be written is not known exactly"
    Written "written" "5.b" "the graph writes the storage in place already"
    NotMutated "not_mutated" "5.a" "the storage belongs to an input that is not mutated"
    Overwritten "overwritten" "5.a" "the target becomes something else before the result was read for the last time"
}

/// Why one copy stays (or had to be inserted), and what is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepReason {
    /// The kind of reason.
    pub code: Code,
    /// The value to blame, where there is one besides the copy itself: a target, a sibling, an operand.
    pub blame: Option<ValueId>,
    /// The fact that was missing, for people.
    pub fact: String,
}

impl KeepReason {
    /// A reason without a culprit.
    #[must_use]
    pub fn new(code: Code, fact: impl Into<String>) -> Self {
        KeepReason { code, blame: None, fact: fact.into() }
    }

    /// A reason with one.
    #[must_use]
    pub fn blaming(code: Code, blame: ValueId) -> Self {
        KeepReason { code, blame: Some(blame), fact: String::new() }
    }
}
