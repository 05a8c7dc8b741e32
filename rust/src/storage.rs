//! What shares storage with what, when some copies are collapsed.

use crate::faults::{Fault, is_seeded};
use crate::ids::ValueId;
use crate::problem::{Def, Problem};

/// The program as it would be with a given set of copies collapsed.
pub struct View<'p> {
    problem: &'p Problem,
    collapsed: &'p [bool],
    base: Vec<ValueId>,
    /// How many copies collapse between a value and its base.
    depth: Vec<u32>,
    storage: Vec<Roots>,
    /// Where a path of views with one parent each ends: at a collapsed copy, a storage, or several parents.
    end: Vec<ValueId>,
}

/// The values whose storage may be shared: nearly always exactly one.
#[derive(Clone)]
enum Roots {
    One(ValueId),
    Many(Box<[ValueId]>),
}

impl Roots {
    fn as_slice(&self) -> &[ValueId] {
        match self {
            Roots::One(root) => std::slice::from_ref(root),
            Roots::Many(roots) => roots,
        }
    }
}

impl<'p> View<'p> {
    /// Computes the view; `collapsed[v]` says of each value whether it is a copy that collapses. Linear time.
    #[must_use]
    pub fn new(problem: &'p Problem, collapsed: &'p [bool]) -> Self {
        let n = problem.values.len();
        let mut base: Vec<ValueId> = Vec::with_capacity(n);
        let mut depth = vec![0; n];
        let mut storage: Vec<Roots> = Vec::with_capacity(n);
        let mut end: Vec<ValueId> = Vec::with_capacity(n);
        for (i, value) in problem.values.iter().enumerate() {
            let me = ValueId::new(i);
            end.push(match &value.def {
                Def::Alias(of) if of.len() == 1 => end[of[0].index()],
                _ => me,
            });
            match &value.def {
                Def::Copy { source, .. } if collapsed[i] => {
                    base.push(base[source.index()]);
                    depth[i] = depth[source.index()] + 1;
                    let is_new = is_seeded(Fault::CollapsedIsNew);
                    storage.push(if is_new { Roots::One(me) } else { storage[source.index()].clone() });
                }
                Def::Alias(of) if !is_seeded(Fault::ViewIsNew) => {
                    base.push(me);
                    storage.push(union(of.iter().map(|v| &storage[v.index()]), me));
                }
                _ => {
                    base.push(me);
                    storage.push(Roots::One(me));
                }
            }
        }
        View { problem, collapsed, base, depth, storage, end }
    }

    /// The value that readers of `value` read.
    #[must_use]
    pub fn base(&self, value: ValueId) -> ValueId {
        self.base[value.index()]
    }

    /// How many copies collapse between `value` and its base.
    #[must_use]
    pub fn depth(&self, value: ValueId) -> u32 {
        self.depth[value.index()]
    }

    /// The values whose storage `value` may share: placeholders, fresh values, and copies that stay. Sorted.
    #[must_use]
    pub fn storage(&self, value: ValueId) -> &[ValueId] {
        self.storage[value.index()].as_slice()
    }

    /// The storages that `value` may share, each with the one that stood in its place before any copy collapsed: the
    /// outermost collapsed copy on the path to it, or the same one. Sorted.
    #[must_use]
    pub fn origins(&self, value: ValueId) -> Vec<(ValueId, ValueId)> {
        let value = self.end[value.index()];
        if self.collapsed[value.index()] {
            return self.storage(value).iter().map(|&root| (root, value)).collect();
        }
        match self.problem.def(value) {
            // A value with several parents is rare, and needs care not to visit one twice.
            Def::Alias(_) => self.origins_of_many(value),
            _ => vec![(value, value)],
        }
    }

    fn origins_of_many(&self, value: ValueId) -> Vec<(ValueId, ValueId)> {
        let mut found = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![value];
        while let Some(v) = stack.pop() {
            if self.collapsed[v.index()] {
                found.extend(self.storage(v).iter().map(|&root| (root, v)));
            } else {
                match self.problem.def(v) {
                    Def::Alias(of) if !of.is_empty() => stack.extend(of.iter().copied().filter(|&o| seen.insert(o))),
                    _ => found.push((v, v)),
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether `value` may share the storage of `root` on a path that no collapsed copy lies on.
    #[must_use]
    pub fn is_bare(&self, value: ValueId, root: ValueId) -> bool {
        self.origins(value).contains(&(root, root))
    }

    /// The outermost collapsed copies on the alias paths of `value`: itself, if it is one.
    #[must_use]
    pub fn frontier(&self, value: ValueId) -> Vec<ValueId> {
        let origins = self.origins(value).into_iter().map(|(_, origin)| origin);
        let mut found: Vec<_> = origins.filter(|o| self.collapsed[o.index()]).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The union of the parents' roots. An alias of nothing is a value of its own.
fn union<'a>(mut parents: impl Iterator<Item = &'a Roots>, me: ValueId) -> Roots {
    let Some(first) = parents.next() else { return Roots::One(me) };
    let mut rest = parents.peekable();
    if rest.peek().is_none() || is_seeded(Fault::FirstArgument) {
        return first.clone();
    }
    let mut roots = first.as_slice().to_vec();
    roots.extend(rest.flat_map(Roots::as_slice).copied());
    roots.sort_unstable();
    roots.dedup();
    match roots[..] {
        [root] => Roots::One(root),
        _ => Roots::Many(roots.into()),
    }
}
