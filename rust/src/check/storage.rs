//! Whose storage a value has, and what shares storage that did not before.
//!
//! An operator that *may* return an argument's storage decides by the types and values of its arguments, so it decides
//! the same in both programs. The storage of its result is therefore an expression, and two programs are compared path
//! by path: where the operators decide as they may, which storage is it before, and which is it afterwards?

use std::collections::{HashMap, HashSet};

use crate::check::terms::Term;

/// Number of a storage in its run.
pub type StorageId = usize;

/// Where a value lives.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In the storage of this input.
    Input(usize),
    /// In storage of its own.
    New,
    /// In one of these, or in storage of its own; the call decides.
    May {
        /// The call, and which of its results.
        call: (Term, u32),
        /// Where the arguments live.
        of: Vec<StorageId>,
    },
}

/// The storages of a run.
pub type Storages = [Storage];

/// The inputs in whose storage a value may live.
#[must_use]
pub fn inputs(storages: &Storages, storage: StorageId) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([storage]);
    let mut stack = vec![storage];
    while let Some(s) = stack.pop() {
        match &storages[s] {
            Storage::Input(i) => found.push(*i),
            Storage::New => {}
            Storage::May { of, .. } => stack.extend(of.iter().copied().filter(|&s| seen.insert(s))),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A storage before and the one that stands for it afterwards, with the slot that has it.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// What it is called in a message: an output, an operand.
    pub label: usize,
    /// Its storage before.
    pub before: StorageId,
    /// Its storage afterwards.
    pub after: StorageId,
}

/// Who shares what: a slot, and an earlier slot or an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharer {
    /// The input with this number.
    Input(usize),
    /// The slot with this label.
    Slot(usize),
}

/// The pairs of slots, or of a slot and an input, that may share storage now and did not before.
///
/// Whatever shares a storage afterwards must have shared one before, so each storage stands for one earlier storage;
/// a second one is a sharing that is new, unless the same slot brings both. Inputs matter unless the slots are operands,
/// which are often inputs themselves.
#[must_use]
pub fn newly_shared(before: &Storages, after: &Storages, slots: &[Slot], inputs_matter: bool) -> Vec<(usize, Sharer)> {
    let mut claims: HashMap<Leaf, Vec<(Leaf, Sharer)>> = HashMap::new();
    let mut found = Vec::new();
    for slot in slots {
        let me = Sharer::Slot(slot.label);
        for (old, new) in paths(before, after, slot.before, slot.after) {
            let known = claims.entry(new).or_insert_with(|| match new {
                Leaf::Input(i) if inputs_matter => vec![(Leaf::Input(i), Sharer::Input(i))],
                _ => Vec::new(),
            });
            let other = known.iter().find(|&&(o, s)| o != old && s != me);
            found.extend(other.map(|&(_, other)| (slot.label, other)));
            if !known.iter().any(|&(o, _)| o == old) {
                known.push((old, me));
            }
        }
    }
    found.dedup();
    found
}

/// A storage that is one for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leaf {
    Input(usize),
    New(StorageId),
}

/// The storages at the end of each path, before and afterwards.
fn paths(before: &Storages, after: &Storages, b: StorageId, a: StorageId) -> Vec<(Leaf, Leaf)> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([(b, a)]);
    let mut stack = vec![(b, a)];
    while let Some((b, a)) = stack.pop() {
        match (&before[b], &after[a]) {
            (Storage::May { call, of }, Storage::May { call: same, of: now }) if call == same => {
                found.push((Leaf::New(b), Leaf::New(a)));
                stack.extend(of.iter().copied().zip(now.iter().copied()).filter(|&pair| seen.insert(pair)));
            }
            (_, Storage::May { of, .. }) => {
                // Decided otherwise than before: nothing is known of what it was.
                found.push((Leaf::New(b), Leaf::New(a)));
                stack.extend(of.iter().map(|&now| (b, now)).filter(|&pair| seen.insert(pair)));
            }
            (_, &Storage::Input(i)) => found.push((leaf(before, b), Leaf::Input(i))),
            (_, Storage::New) => found.push((leaf(before, b), Leaf::New(a))),
        }
    }
    found
}

fn leaf(storages: &Storages, storage: StorageId) -> Leaf {
    match storages[storage] {
        Storage::Input(i) => Leaf::Input(i),
        // A storage that may be an input's stands for itself: it is not certainly the input's.
        Storage::New | Storage::May { .. } => Leaf::New(storage),
    }
}
