//! Which consumers get a program wrong as it stands.
//!
//! A stock consumer carries mutations out in its own way (semantics 1 and 2), and what it gets wrong can be read off a
//! problem without running anything: who writes before whom reads, what is taken for something else, and what an earlier
//! decomposition removed. (The next one removes nothing of a program with mutation outputs: for each buffer it adds a
//! copy and takes one away.) Nothing here changes a program; canonicalization mends most of it, and a finding says so.

use crate::hazards::mutation_outputs;
use crate::ids::ValueId;
use crate::problem::{Def, InputKind, Output, Problem};
use crate::reasons::{Code, KeepReason};
use crate::redundancy::compare;
use crate::storage::View;

/// Somebody who carries mutations out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consumer {
    /// `ExportedProgram.module()`.
    Module,
    /// `ExportedProgram.run_decompositions()`, and whatever begins with it.
    Decompositions,
    /// ExecuTorch's `to_executorch`.
    ExecuTorch,
}

impl Consumer {
    /// The consumer's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Module => "torch.module",
            Decompositions => "torch.run_decompositions",
            ExecuTorch => "executorch",
        }
    }
}

use Consumer::{Decompositions, ExecuTorch, Module};

macro_rules! findings {
    ($($variant:ident $code:literal $doc:literal $advice:literal)*) => {
        /// The stable code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FindingCode {
            $(#[doc = $doc] $variant,)*
        }

        impl FindingCode {
            /// Every code, for the test that each is documented and has a fixture.
            pub const ALL: &'static [FindingCode] = &[$(FindingCode::$variant),*];

            /// The code as users see it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(FindingCode::$variant => $code,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(FindingCode::$variant => $doc,)* }
            }

            /// What to do.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(FindingCode::$variant => $advice,)* }
            }
        }
    };
}

findings! {
    Overwritten "overwritten"
        "a target is overwritten before another target's new value is read from it"
        "canonicalize the program: the portable form keeps or adds a copy, mutcanon.module orders the writes"
    Overlap "overlap"
        "a target receives another view of itself, which is undefined when written in place"
        "canonicalize the program: the portable form adds a copy"
    StaleOutput "stale_output"
        "a user output is the old value of a target, and the caller sees the new one"
        "canonicalize the program: a copy is added for the output"
    ReplacedOutput "replaced_output"
        "a user output is also a mutation's value, and comes back with the target's dtype, shape or strides"
        "use mutcanon.module or mutcanon.run_decompositions"
    DroppedWrite "dropped_write"
        "the new value is another placeholder of the target's kind, and the write is taken for done"
        "canonicalize the program: the portable form adds a copy; or lower with mutcanon.executorch"
    ParameterNotWritten "parameter_not_written"
        "a parameter is mutated, which is never written back"
        "lower with mutcanon.executorch"
    PermutedOutputs "permuted_outputs"
        "a mutation that is done in place stands before one that is not, and their outputs change places"
        "lower with mutcanon.executorch"
    SharedValue "shared_value"
        "two targets receive one value, and mutations are told apart by their value's name"
        "canonicalize the program, or decompose it with mutcanon.run_decompositions"
    SameName "same_name"
        "an input and a buffer or parameter have one name, and what one should receive is written to the other"
        "rename one of the two; or use mutcanon.module, mutcanon.run_decompositions and mutcanon.executorch"
    AlreadyLost "already_lost"
        "a value that is also read differs from its buffer in type, so an earlier decomposition may have removed a copy"
        "export again and decompose with mutcanon.run_decompositions"
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub code: FindingCode,
    /// The output that comes out wrong.
    pub output: usize,
    /// The other output that has to do with it.
    pub other: Option<usize>,
    /// Who gets it wrong.
    pub consumers: Vec<Consumer>,
}

/// Everything that stock consumers get wrong, in output order. The problem must have been validated.
#[must_use]
pub fn find(problem: &Problem) -> Vec<Finding> {
    let nothing = vec![false; problem.values.len()];
    let view = View::new(problem, &nothing);
    let mut finder = Finder { problem, found: Vec::new() };
    finder.sequence(&view);
    finder.executorch(&view);
    finder.shared(&view);
    finder.names();
    finder.types(&view);
    finder.found.sort_by_key(|f| (f.output, f.code));
    finder.found.dedup();
    finder.found
}

/// Whether the types certainly differ; what is not proved equal need not be different.
fn is_conversion(reason: &KeepReason) -> bool {
    matches!(reason.code, Code::Cast | Code::Broadcast | Code::Strides)
}

struct Finder<'p> {
    problem: &'p Problem,
    found: Vec<Finding>,
}

impl Finder<'_> {
    fn add(&mut self, code: FindingCode, output: usize, other: Option<usize>, consumers: &[Consumer]) {
        self.found.push(Finding { code, output, other, consumers: consumers.to_vec() });
    }

    fn mutations(&self) -> impl Iterator<Item = (usize, ValueId, ValueId)> + use<'_> {
        self.problem.outputs.iter().enumerate().filter_map(|(i, o)| match *o {
            Output::Mutation { target, value, .. } => Some((i, target, value)),
            _ => None,
        })
    }

    /// For each value, the output that writes it, where that changes it.
    fn writers(&self, view: &View<'_>) -> Vec<Option<usize>> {
        let mut writers = vec![None; self.problem.values.len()];
        for (i, target, value) in self.mutations() {
            if view.base(value) != target {
                writers[target.index()] = Some(i);
            }
        }
        writers
    }

    /// Writes in signature order, each value read when it is its turn; user outputs are read afterwards.
    fn sequence(&mut self, view: &View<'_>) {
        let all = &[Module, Decompositions, ExecuTorch];
        let writers = self.writers(view);
        let mut value_of = vec![None; self.problem.values.len()];
        let mutations: Vec<_> = self.mutations().collect();
        for (i, target, value) in mutations {
            let base = view.base(value);
            value_of[base.index()] = Some((i, target));
            if base == target {
                continue;
            }
            for writer in view.storage(base).iter().filter_map(|r| writers[r.index()]) {
                if writer == i {
                    self.add(FindingCode::Overlap, i, None, all);
                } else if writer < i {
                    self.add(FindingCode::Overwritten, i, Some(writer), all);
                }
            }
        }
        for (i, output) in self.problem.outputs.iter().enumerate() {
            let Output::User(value) = *output else { continue };
            let base = view.base(value);
            if let Some(writer) = view.storage(base).iter().find_map(|r| writers[r.index()]) {
                self.add(FindingCode::StaleOutput, i, Some(writer), all);
            }
            if let Some((mutation, target)) = value_of[base.index()]
                && base != target
                && compare(self.problem, target, base, target, &mut Vec::new()).is_err_and(|r| is_conversion(&r))
            {
                self.add(FindingCode::ReplacedOutput, i, Some(mutation), &[Module, Decompositions]);
            }
        }
    }

    /// What ExecuTorch's write-back takes for something else.
    fn executorch(&mut self, view: &View<'_>) {
        let mut in_place = None;
        let mutations: Vec<_> = self.mutations().collect();
        for (i, target, value) in mutations {
            let base = view.base(value);
            let is_other = base != target && *self.problem.def(base) == Def::Placeholder;
            let kind = self.problem.kinds.get(&target).copied();
            if kind == Some(InputKind::Other) {
                self.add(FindingCode::ParameterNotWritten, i, None, &[ExecuTorch]);
            } else if is_other && self.problem.may_be_of_one_kind(base, target) {
                self.add(FindingCode::DroppedWrite, i, None, &[ExecuTorch]);
                in_place = in_place.or(Some(i));
            } else if base == target {
                in_place = in_place.or(Some(i));
            } else if let Some(first) = in_place {
                self.add(FindingCode::PermutedOutputs, i, Some(first), &[ExecuTorch]);
            }
        }
    }

    fn shared(&mut self, view: &View<'_>) {
        let mut owner: Vec<Option<usize>> = vec![None; self.problem.values.len()];
        for i in mutation_outputs(self.problem) {
            let Output::Mutation { value, .. } = self.problem.outputs[i] else { continue };
            let slot = &mut owner[view.base(value).index()];
            match *slot {
                Some(first) => {
                    self.add(FindingCode::SharedValue, i, Some(first), &[Module, Decompositions, ExecuTorch]);
                }
                None => *slot = Some(i),
            }
        }
    }

    /// Torch looks a target up among the states first, ExecuTorch among the inputs.
    fn names(&mut self) {
        for &output in &self.problem.namesakes {
            let is_input = matches!(self.problem.outputs[output], Output::Mutation { pinned: true, .. });
            let consumers: &[_] = if is_input { &[Module, Decompositions, ExecuTorch] } else { &[ExecuTorch] };
            self.add(FindingCode::SameName, output, None, consumers);
        }
    }

    /// Conversions that are lost.
    fn types(&mut self, view: &View<'_>) {
        let mut is_read = vec![false; self.problem.values.len()];
        for &value in &self.problem.read {
            is_read[value.index()] = true;
        }
        for output in &self.problem.outputs {
            if let Output::User(value) = *output {
                for root in view.storage(value) {
                    is_read[root.index()] = true;
                }
            }
        }
        let mutations: Vec<_> = self.mutations().collect();
        for (i, target, value) in mutations {
            let queries = &mut Vec::new();
            if is_read[value.index()]
                && matches!(self.problem.outputs[i], Output::Mutation { pinned: false, .. })
                && compare(self.problem, target, value, target, queries).is_err_and(|r| is_conversion(&r))
            {
                self.add(FindingCode::AlreadyLost, i, None, &[Module, Decompositions, ExecuTorch]);
            }
        }
    }
}
