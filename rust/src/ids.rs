//! Dense identifiers.
//!
//! Values and layouts are numbered from zero in the order in which they were added, so a side table is a `Vec` and
//! iteration order is the program's order: nothing in this crate iterates a hash map.

macro_rules! id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The identifier as an index.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The identifier of the element at `index`.
            ///
            /// # Panics
            /// When `index` needs more than 32 bits, which [`crate::problem::Problem`] never lets happen.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than 2^32 elements"))
            }
        }
    };
}

id!(ValueId, "A tensor value of the program: a placeholder or what a node computes.");
id!(LayoutId, "A distinct [`crate::layout::Layout`]; many values share one.");
id!(SymbolId, "A distinct symbolic size or stride expression.");
