//! Ordering the write-backs.
//!
//! Mutation is parallel assignment: every target receives a value that was computed from the state on entry. A
//! consumer carries it out by writing one target after another, so a value that shares storage with a target must be
//! written before that target is overwritten (the parallel-copy problem of SSA destruction; Boissinot et al., CGO 2009).
//!
//! Moves that wait for one another in a circle, a *ring*, are broken by saving one value in a temporary first. Where
//! each value reads the storage of at most one target, rings are disjoint and one temporary for each is the minimum.
//! A move that reads its own target through another view is a ring of one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::faults::{Fault, is_seeded};
use crate::ids::ValueId;

/// One element of the parallel assignment.
#[derive(Clone, Debug)]
pub struct Move {
    /// The placeholder that is written.
    pub target: ValueId,
    /// The placeholders whose storage the value may share.
    pub reads: Vec<ValueId>,
    /// Whether the value is the target itself, so that nothing is written.
    pub identity: bool,
    /// Pinned moves keep their order among themselves.
    pub pinned: bool,
    /// The price of saving this value; the cheapest of a ring is saved, the first of equals.
    pub cost: u64,
}

/// One step of the sequence; the number is the move's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy the value into a temporary, which stands for it from here on.
    Save(usize),
    /// Write the value, or its temporary, to the target. For an identity this writes nothing.
    Write(usize),
}

/// Orders `moves`. Without constraints the order is that of the moves.
#[must_use]
pub fn sequence(moves: &[Move]) -> Vec<Step> {
    let mut order = Order::new(moves);
    let mut steps = Vec::with_capacity(moves.len());
    for (i, m) in moves.iter().enumerate() {
        // No order helps a value that lives in its own target, or in the target of an earlier pinned move.
        let reads_itself = !m.identity && m.reads.contains(&m.target);
        let reads_earlier = m.pinned && order.overwriters[i].iter().any(|&w| w < i && moves[w].pinned);
        if reads_itself || reads_earlier {
            steps.push(Step::Save(i));
            order.forget_reads(i);
        }
    }
    loop {
        while let Some(Reverse(i)) = order.ready.pop() {
            steps.push(Step::Write(i));
            order.write(i);
        }
        let Some(i) = order.cheapest_of_a_ring() else { return steps };
        steps.push(Step::Save(i));
        order.forget_reads(i);
    }
}

/// Which move waits for which.
struct Order<'m> {
    moves: &'m [Move],
    /// For each move, the moves that overwrite storage that it reads.
    overwriters: Vec<Vec<usize>>,
    /// For each move, the moves that read its target.
    readers: Vec<Vec<usize>>,
    /// The next pinned move, and the one before.
    next_pinned: Vec<Option<usize>>,
    previous_pinned: Vec<Option<usize>>,
    waits: Vec<usize>,
    written: Vec<bool>,
    /// Whether the value of a move no longer depends on any target.
    independent: Vec<bool>,
    first_unwritten: usize,
    ready: BinaryHeap<Reverse<usize>>,
}

impl<'m> Order<'m> {
    fn new(moves: &'m [Move]) -> Self {
        let n = moves.len();
        let last = moves.iter().map(|m| m.target.index() + 1).max().unwrap_or(0);
        let mut writer_of = vec![None; last];
        for (i, m) in moves.iter().enumerate().filter(|(_, m)| !m.identity) {
            writer_of[m.target.index()] = Some(i);
        }
        let mut order = Order {
            moves,
            overwriters: vec![Vec::new(); n],
            readers: vec![Vec::new(); n],
            next_pinned: vec![None; n],
            previous_pinned: vec![None; n],
            waits: vec![0; n],
            written: vec![false; n],
            independent: vec![false; n],
            first_unwritten: 0,
            ready: BinaryHeap::new(),
        };
        let mut pinned = None;
        for (i, m) in moves.iter().enumerate() {
            for writer in m.reads.iter().filter_map(|r| writer_of.get(r.index()).copied().flatten()) {
                let (i, writer) = if is_seeded(Fault::WriterFirst) { (writer, i) } else { (i, writer) };
                if writer != i && !m.identity {
                    order.overwriters[i].push(writer);
                    order.readers[writer].push(i);
                    order.waits[writer] += 1;
                }
            }
            if m.pinned
                && let Some(before) = pinned.replace(i)
            {
                order.next_pinned[before] = Some(i);
                order.previous_pinned[i] = Some(before);
                order.waits[i] += 1;
            }
        }
        order.ready.extend((0..n).filter(|&i| order.waits[i] == 0).map(Reverse));
        order
    }

    fn write(&mut self, i: usize) {
        self.written[i] = true;
        self.forget_reads(i);
        if let Some(next) = self.next_pinned[i] {
            self.release(next);
        }
    }

    /// The value of `i` no longer depends on any target.
    fn forget_reads(&mut self, i: usize) {
        self.independent[i] = true;
        for writer in std::mem::take(&mut self.overwriters[i]) {
            self.release(writer);
        }
    }

    fn release(&mut self, i: usize) {
        self.waits[i] -= 1;
        if self.waits[i] == 0 && !self.written[i] {
            self.ready.push(Reverse(i));
        }
    }

    /// When every remaining move waits: the move to save, or `None` when nothing remains.
    fn cheapest_of_a_ring(&mut self) -> Option<usize> {
        while self.first_unwritten < self.moves.len() && self.written[self.first_unwritten] {
            self.first_unwritten += 1;
        }
        let mut at = self.first_unwritten;
        if at == self.moves.len() {
            return None;
        }
        // Walk to whatever each move waits for; the walk must close, since all of them wait.
        let mut position = std::collections::HashMap::new();
        let mut path = Vec::new();
        while !position.contains_key(&at) {
            position.insert(at, path.len());
            let reader = self.readers[at].iter().copied().filter(|&r| !self.independent[r]).min();
            let pinned = self.previous_pinned[at].filter(|&p| !self.written[p]);
            // Saving helps only where a reader is waited for, so a reader is preferred to a pin.
            path.push((at, reader));
            at = reader.or(pinned).expect("an unwritten move waits for something");
        }
        let ring = &path[position[&at]..];
        ring.iter().filter_map(|&(_, reader)| reader).min_by_key(|&i| (self.moves[i].cost, i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(pairs: &[(u32, u32)]) -> Vec<Move> {
        pairs
            .iter()
            .map(|&(target, read)| Move {
                target: ValueId(target),
                reads: vec![ValueId(read)],
                identity: target == read,
                pinned: false,
                cost: 0,
            })
            .collect()
    }

    #[test]
    fn a_delay_line_is_written_from_its_end() {
        // a <- 9 (an input), b <- a, c <- b
        let steps = sequence(&moves(&[(0, 9), (1, 0), (2, 1)]));
        assert_eq!(steps, [Step::Write(2), Step::Write(1), Step::Write(0)]);
    }

    #[test]
    fn a_swap_takes_one_temporary() {
        let steps = sequence(&moves(&[(0, 1), (1, 0)]));
        assert_eq!(steps, [Step::Save(0), Step::Write(1), Step::Write(0)]);
    }

    #[test]
    fn two_rings_take_two_temporaries() {
        let steps = sequence(&moves(&[(0, 1), (1, 2), (2, 0), (3, 4), (4, 3)]));
        assert_eq!(steps.iter().filter(|s| matches!(s, Step::Save(_))).count(), 2);
    }

    #[test]
    fn ten_thousand_swaps_are_quick() {
        let pairs: Vec<_> = (0..10_000).flat_map(|i| [(2 * i, 2 * i + 1), (2 * i + 1, 2 * i)]).collect();
        assert_eq!(sequence(&moves(&pairs)).len(), 30_000);
    }
}
