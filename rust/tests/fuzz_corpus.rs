//! The fuzz targets' checks on the committed corpus and on mutations of it, with a fixed seed: no nightly compiler, no
//! libfuzzer, a few seconds. `MUTCANON_FUZZ_SECONDS` makes it longer.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn seconds() -> u64 {
    std::env::var("MUTCANON_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|p| fs::read(p).unwrap()).collect()
}

/// Words of the format: `"as_tensor"`, a name, a number.
fn words(seeds: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || b"_.\"".contains(b);
    let pieces = seeds.iter().flat_map(|s| s.split(move |b| !is_word(b)));
    let mut words: Vec<_> = pieces.filter(|w| !w.is_empty()).map(<[u8]>::to_vec).collect();
    words.sort();
    words.dedup();
    words
}

/// Marsaglia's xorshift: enough to disturb a file, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (n.max(1) as u64)).unwrap()
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

fn mutate(data: &mut Vec<u8>, random: &mut Random, words: &[Vec<u8>]) {
    let at = random.below(data.len());
    let end = (at + 1 + random.below(24)).min(data.len());
    match random.below(7) {
        0 if !data.is_empty() => data[at] ^= 1 << random.below(8),
        1 => drop(data.drain(at..end)),
        2 => {
            let piece = data[at..end].to_vec();
            let to = random.below(data.len());
            drop(data.splice(to..to, piece));
        }
        3 => data.truncate(at),
        // A word in the place of another: most of these still parse.
        _ if !words.is_empty() => {
            let old = random.pick(words).clone();
            let places: Vec<_> =
                data.windows(old.len()).enumerate().filter(|(_, w)| *w == old).map(|(i, _)| i).collect();
            if !places.is_empty() {
                let place = *random.pick(&places);
                drop(data.splice(place..place + old.len(), random.pick(words).iter().copied()));
            }
        }
        _ => {}
    }
}

fn run(target: &str, check: fn(&[u8])) {
    let seeds = corpus(target);
    for seed in &seeds {
        check(seed);
    }
    let words = words(&seeds);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let end = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < end {
        let mut data = random.pick(&seeds).clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, &mut random, &words);
        }
        check(&data);
    }
}

#[test]
fn zip() {
    run("zip", checks::zip);
}

#[test]
fn graph() {
    run("graph", checks::graph);
}

#[test]
fn rewrite() {
    run("rewrite", checks::rewrite);
}
