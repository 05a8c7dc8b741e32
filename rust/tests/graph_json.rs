//! The graph's JSON: what an edit changes and what it leaves, and which texts are refused.
//!
//! The programs are written here by hand, in torch's spelling. `tests/test_archive.py` does the same with torch's own.

#![allow(missing_docs, clippy::unwrap_used)]

use std::borrow::Cow;

use mutcanon::Form;
use mutcanon::pt2::edit::Edited;
use mutcanon::pt2::model;

const COPY: &str = "torch.ops.aten.copy.default";

fn tensor(name: &str) -> String {
    format!(r#"{{"as_tensor": {{"name": "{name}"}}}}"#)
}

fn node(target: &str, inputs: &[(&str, &str)], output: &str) -> String {
    let input = |(name, value): &(&str, &str)| format!(r#"{{"name": "{name}", "arg": {}, "kind": 1}}"#, tensor(value));
    let inputs: Vec<_> = inputs.iter().map(input).collect();
    let metadata = r#"{"stack_trace": "line 1\n\ud800", "torch_fn": "f;g", "from_node": "[{\"name\": \"copy\"}]"}"#;
    format!(
        r#"{{"target": "{target}", "inputs": [{}], "outputs": [{}], "metadata": {metadata}, "is_hop_single_tensor_return": null, "name": "{output}"}}"#,
        inputs.join(", "),
        tensor(output)
    )
}

fn copy(destination: &str, source: &str, output: &str) -> String {
    node(COPY, &[("self", destination), ("src", source)], output)
}

fn meta(name: &str) -> String {
    format!(
        r#""{name}": {{"dtype": 7, "sizes": [{{"as_int": 3}}], "requires_grad": true, "device": {{"type": "cpu", "index": null}}, "strides": [{{"as_int": 1}}], "storage_offset": {{"as_int": 7}}, "layout": 7}}"#
    )
}

/// A graph with inputs a, b and x.
fn graph(nodes: &[String], outputs: &[&str], names: &[&str]) -> String {
    let list = |names: &[&str]| names.iter().map(|n| tensor(n)).collect::<Vec<_>>().join(", ");
    let metas: Vec<_> = ["a", "b", "x"].iter().chain(names).map(|n| meta(n)).collect();
    format!(
        r#"{{"inputs": [{}], "outputs": [{}], "nodes": [{}], "tensor_values": {{{}}}, "sym_int_values": {{}}, "new": 1e999}}"#,
        list(&["a", "b", "x"]),
        list(outputs),
        nodes.join(", "),
        metas.join(", ")
    )
}

/// A program whose outputs mutate a and then b, as far as there are outputs; the rest are user outputs.
fn program(nodes: &[String], outputs: &[&str], names: &[&str]) -> String {
    let spec = |(i, name): (usize, &&str)| match ["a", "b"].get(i) {
        Some(target) => {
            format!(r#"{{"user_input_mutation": {{"arg": {{"name": "{name}"}}, "user_input_name": "{target}"}}}}"#)
        }
        None => format!(r#"{{"user_output": {{"arg": {}}}}}"#, tensor(name)),
    };
    let specs: Vec<_> = outputs.iter().enumerate().map(spec).collect();
    let inputs = ["a", "b", "x"].map(|n| format!(r#"{{"user_input": {{"arg": {}}}}}"#, tensor(n)));
    let interface = format!(
        r#"{{"inputs": [{}], "outputs": [{}], "in_spec": "", "out_spec": "", "forward_arg_names": null}}"#,
        tensor("a"),
        tensor(outputs[0])
    );
    format!(
        r#"{{"graph_module": {{"graph": {}, "signature": {{"input_specs": [{}], "output_specs": [{}]}}, "module_call_graph": [{{"fqn": "", "signature": null}}, {{"fqn": "m", "signature": {interface}}}]}}, "opset_version": {{"aten": 10}}, "range_constraints": {{}}, "schema_version": {{"major": 8, "minor": 20}}, "verifiers": ["ATEN"], "torch_version": "2.13.0", "huge": 123456789012345678901234567890}}"#,
        graph(nodes, outputs, names),
        inputs.join(", "),
        specs.join(", ")
    )
}

fn rewritten(text: &str, form: Form) -> String {
    let model = model::read(text, form).unwrap();
    let edited = Edited::new(Cow::Borrowed(text), &model.splices).unwrap().to_string();
    model::check(&edited, form, model.copies_after).unwrap();
    edited
}

fn add(output: &str, left: &str) -> String {
    node("torch.ops.aten.add.Tensor", &[("self", left), ("other", "x")], output)
}

#[test]
fn a_collapsed_chain_leaves_the_text_of_a_program_that_never_had_it() {
    let nodes = |copies: &[String]| [&[add("v", "a"), add("w", "b")], copies, &[add("y", "v")]].concat();
    let before = program(
        &nodes(&[copy("a", "v", "copy"), copy("a", "copy", "copy_1"), copy("b", "w", "copy_2")]),
        &["copy_1", "copy_2", "y"],
        &["v", "w", "copy", "copy_1", "copy_2", "y"],
    );
    let after = program(&nodes(&[]), &["v", "w", "y"], &["v", "w", "y"]);
    assert_eq!(rewritten(&before, Form::Portable), after);
    assert_eq!(rewritten(&after, Form::Portable), after);
}

#[test]
fn copies_at_either_end_and_alone_go_with_their_commas() {
    let copies = [copy("a", "x", "copy"), copy("b", "copy", "copy_1")];
    let named = |outputs: &[&str], nodes: &[String], names: &[&str]| program(nodes, outputs, names);
    // x is no target, so portable keeps one copy of it for each mutation.
    let first = named(&["copy", "copy_1"], &copies, &["copy", "copy_1"]);
    let text = rewritten(&first, Form::Minimal);
    assert!(text.contains(r#""nodes": [{"target""#), "{text}");
    let identity = named(&["copy", "b"], &[copy("a", "a", "copy")], &["copy"]);
    assert_eq!(rewritten(&identity, Form::Minimal), named(&["a", "b"], &[], &[]));
    let last = named(&["v", "copy"], &[add("v", "a"), copy("b", "b", "copy")], &["v", "copy"]);
    assert_eq!(rewritten(&last, Form::Minimal), named(&["v", "b"], &[add("v", "a")], &["v"]));
}

#[test]
fn readers_of_a_copy_in_any_kind_of_argument_read_its_source() {
    let reader = |name: &str| {
        format!(
            r#"{{"target": "torch.ops.higher_order.map_impl", "inputs": [{{"name": "", "arg": {{"as_tensors": [{{"name": "{name}"}}, {{"name": "{name}"}}]}}, "kind": 1}}, {{"name": "", "arg": {{"as_nested_tensors": [[{{"name": "{name}"}}], []]}}}}, {{"name": "k", "arg": {{"as_optional_tensors": [{{"as_none": true}}, {{"as_tensor": {{"name": "{name}"}}}}]}}}}, {{"name": "o", "arg": {{"as_optional_tensor": {{"as_tensor": {{"name": "{name}"}}}}}}}}, {{"name": "d", "arg": {{"as_string_to_argument": {{"copy": {{"as_tensor": {{"name": "{name}"}}}}, "i": {{"as_int": 1}}}}}}}}, {{"name": "", "arg": {{"as_graph": {{"name": "copy", "graph": {}}}}}}}, {{"name": "", "arg": {{"as_string": "copy"}}}}], "outputs": [{{"as_tensors": [{{"name": "y"}}]}}], "metadata": {{}}}}"#,
            graph(&[add("copy", "a")], &["copy"], &["copy"])
        )
    };
    let text = |copy: &[String], name| {
        program(&[&[add("v", "a")], copy, &[reader(name)]].concat(), &[name, "b", "y"], &["v", name, "y"])
    };
    let before = text(&[copy("a", "v", "copy")], "copy");
    let after = text(&[], "v").replace(&format!(", {}, {}", meta("v"), meta("v")), &format!(", {}", meta("v")));
    assert_eq!(rewritten(&before, Form::Portable), after);
}

#[test]
fn what_only_a_collapsed_copy_read_goes_too() {
    let view = |output: &str, of: &str| node("torch.ops.aten.view.default", &[("self", of)], output);
    let random = node("torch.ops.aten.bernoulli.default", &[("self", "x")], "r");
    let before = program(
        &[
            add("v", "a"),
            view("t", "a"),
            view("u", "t"),
            random.clone(),
            copy("u", "v", "copy"),
            copy("r", "copy", "copy_1"),
        ],
        &["copy_1"],
        &["v", "t", "u", "r", "copy", "copy_1"],
    );
    let after = program(&[add("v", "a"), random], &["v"], &["v", "r"]);
    assert_eq!(rewritten(&before, Form::Portable), after);
}

#[test]
fn a_swap_without_copies_gets_one_and_a_delay_line_another_order() {
    let swap = program(&[], &["b", "a", "x"], &[]);
    let text = rewritten(&swap, Form::Portable);
    assert_eq!(text.matches(COPY).count(), 2, "{text}"); // two of one kind, which some consumers drop
    assert!(
        text.contains(r#""nodes": [{"target": "torch.ops.aten.copy.default", "inputs": [{"name": "self""#),
        "{text}"
    );
    assert!(text.contains(r#""copy_1": {"dtype": 7, "sizes": [{"as_int": 3}], "requires_grad": false"#), "{text}");
    assert!(text.contains(r#""storage_offset": {"as_int": 0}"#), "{text}");
    assert_eq!(rewritten(&swap, Form::Minimal), swap);
    // b may be a view of a's old value, so b is written first; buffers may change places.
    let view = node("torch.ops.aten.view.default", &[("self", "a")], "t");
    let delay = program(&[add("v", "a"), view], &["v", "t"], &["v", "t"])
        .replace("user_input_mutation", "buffer_mutation")
        .replace("user_input_name", "buffer_name")
        .replace(
            r#""user_input": {"arg": {"as_tensor": {"name": "a"}}}"#,
            r#""buffer": {"arg": {"name": "a"}, "buffer_name": "a", "persistent": true}"#,
        )
        .replace(
            r#""user_input": {"arg": {"as_tensor": {"name": "b"}}}"#,
            r#""buffer": {"arg": {"name": "b"}, "buffer_name": "b", "persistent": true}"#,
        );
    let text = rewritten(&delay, Form::Portable);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at(r#""outputs": [{"as_tensor": {"name": "t"}}, {"as_tensor": {"name": "v"}}], "nodes""#) > 0);
    assert!(at(r#""buffer_name": "b"}}, {"buffer_mutation""#) > 0);
}

#[test]
fn a_new_copy_has_a_name_that_nothing_else_has() {
    let taken = node("torch.ops.aten.add.Tensor", &[("self", "a"), ("other", "x")], "copy_41");
    let text = rewritten(&program(&[taken], &["b", "a", "copy_41"], &["copy_41"]), Form::Portable);
    assert!(text.contains(r#""outputs": [{"as_tensor": {"name": "copy_42"}}"#), "{text}");
}

#[test]
fn lone_surrogates_and_huge_numbers_stay_as_they_are() {
    let before = program(&[add("v", "a"), copy("a", "v", "copy")], &["copy"], &["v", "copy"]);
    let after = rewritten(&before, Form::Portable);
    for odd in [r"\ud800", "1e999", "123456789012345678901234567890"] {
        assert!(after.contains(odd), "{odd}");
    }
}

/// Replaces one part of the text, which must be there.
fn spoil(text: &str, part: &str, by: &str) -> String {
    assert!(text.contains(part), "{part} is not in {text}");
    text.replacen(part, by, 1)
}

/// What is wrong, the code, a part of the text, and what takes its place.
const SPOILT: &[[&str; 4]] = &[
    ["NaN", "bad_json", "1e999", "NaN"],
    ["Infinity", "bad_json", "1e999", "-Infinity"],
    ["a comma too many", "bad_json", r#""sym_int_values": {}"#, r#""sym_int_values": {},"#],
    ["no signature", "bad_json", r#""signature""#, r#""sig""#],
    ["a key twice", "bad_json", r#""range_constraints": {}"#, r#""range_constraints": {}, "range_constraints": {}"#],
    ["a node's key twice", "bad_json", r#""metadata""#, r#""target": "x", "metadata""#],
    ["a name in two spellings", "bad_json", r#""name": "copy""#, r#""name": "cop\u0079""#],
    ["an empty union", "bad_json", r#"{"as_tensor": {"name": "x"}}"#, "{}"],
    [
        "two kinds at once",
        "bad_json",
        r#"{"as_tensor": {"name": "x"}}"#,
        r#"{"as_tensor": {"name": "x"}, "as_int": 1}"#,
    ],
    ["an unknown output", "bad_json", "user_output", "new_output"],
    ["a size that is no number", "bad_json", r#"{"as_int": 3}"#, r#"{"as_int": "3"}"#],
    ["a size of 2^70", "bad_json", r#"{"as_int": 3}"#, r#"{"as_int": 1180591620717411303424}"#],
    ["another major version", "schema_version", r#""major": 8"#, r#""major": 9"#],
    [
        "a new kind of argument",
        "unknown_argument",
        r#"{"as_tensor": {"name": "x"}}, "kind""#,
        r#"{"as_rope": 1}, "kind""#,
    ],
    [
        "a name twice",
        "duplicate_name",
        r#""outputs": [{"as_tensor": {"name": "v"}}]"#,
        r#""outputs": [{"as_tensor": {"name": "a"}}]"#,
    ],
    ["a type twice", "duplicate_name", r#""b": {"dtype""#, r#""a": {"dtype""#],
    ["a source that is nowhere", "unknown_name", SOURCE, r#""src", "arg": {"as_tensor": {"name": "q"}}"#],
    ["a copy of itself", "unknown_name", SOURCE, r#""src", "arg": {"as_tensor": {"name": "copy"}}"#],
    ["a copy of a number", "malformed_node", SOURCE, r#""src", "arg": {"as_int": 1}"#],
    ["an output that is nowhere", "unknown_name", r#""outputs": [{"as_tensor": {"name": "v"}}]"#, r#""outputs": []"#],
    ["another name in the signature", "signature_mismatch", r#""arg": {"name": "copy"}"#, r#""arg": {"name": "v"}"#],
    [
        "an output less in the signature",
        "signature_mismatch",
        r#", {"user_output": {"arg": {"as_tensor": {"name": "v"}}}}"#,
        "",
    ],
    ["a target that is no input", "unknown_target", r#""user_input_name": "a""#, r#""user_input_name": "v""#],
    ["one target twice", "invalid_problem", r#""user_input_name": "b""#, r#""user_input_name": "a""#],
];
const SOURCE: &str = r#""src", "arg": {"as_tensor": {"name": "v"}}"#;

fn good() -> String {
    program(&[add("v", "a"), copy("a", "v", "copy")], &["copy", "b", "v"], &["v", "copy"])
}

fn assert_refused(what: &str, code: &str, text: &str) {
    let error = model::read(text, Form::Portable).map(|_| ()).expect_err(what);
    assert_eq!(error.code(), code, "{what}: {error}");
}

#[test]
fn spoilt_programs_are_refused_with_their_code() {
    model::read(&good(), Form::Portable).unwrap();
    for [what, code, part, by] in SPOILT {
        assert_refused(what, code, &spoil(&good(), part, by));
    }
    assert_refused("nothing", "bad_json", "");
    assert_refused("a list", "bad_json", "[]");
    assert_refused("half", "bad_json", &good()[..good().len() / 2]);
    assert_refused("something behind", "bad_json", &format!("{} x", good()));
    assert_refused("a byte order mark", "bad_json", &format!("\u{feff}{}", good()));
    assert_refused("another version, unlike ours", "schema_version", r#"{"schema_version": {"major": 9, "minor": 0}}"#);
}

#[test]
fn deep_nesting_is_refused_where_it_is_read_and_free_where_it_is_skipped() {
    let call = |body: &str| {
        let bare = node("torch.ops.higher_order.cond", &[], "y");
        let argument = format!(r#"{{"name": "", "arg": {{"as_graph": {{"name": "g", "graph": {body}}}}}}}"#);
        bare.replace(r#""inputs": []"#, &format!(r#""inputs": [{argument}]"#))
    };
    let nested = |depth| (0..depth).fold(graph(&[], &["a"], &[]), |inner, _| graph(&[call(&inner)], &["y"], &["y"]));
    model::read(&program(&[call(&nested(10))], &["y"], &["y"]), Form::Portable).unwrap();
    assert_refused("bodies in bodies", "bad_json", &program(&[call(&nested(200))], &["y"], &["y"]));
    let lists = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    model::read(&spoil(&good(), "1e999", &lists), Form::Portable).unwrap();
}

#[test]
fn sharing_of_everything_with_everything_is_refused_before_it_takes_memory() {
    let names = |prefix: &str, n: usize| (0..n).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let wide = |n| {
        let (new, views) = (names("f", n), names("v", n));
        let mut nodes: Vec<_> = new.iter().map(|f| node("torch.ops.aten.clone.default", &[("self", "a")], f)).collect();
        let all: Vec<_> = new.iter().map(|f| ("x", f.as_str())).collect();
        nodes.push(node("torch.ops.unknown.op.default", &all, "u"));
        nodes.extend(views.iter().map(|v| node("torch.ops.aten.view.default", &[("self", "u")], v)));
        let outputs: Vec<_> = ["a", "b"].into_iter().chain(views.iter().map(String::as_str)).collect();
        let values: Vec<_> = new.iter().chain(&views).map(String::as_str).chain(["u"]).collect();
        program(&nodes, &outputs, &values)
    };
    model::read(&wide(100), Form::Portable).unwrap();
    assert_refused("1000 with 1000", "too_large", &wide(1000));
}

#[test]
fn names_that_would_fill_our_memory_are_refused() {
    let long = "n".repeat(2000);
    let spoilt = [
        ("of a value", r#""name": "v"}"#, format!(r#""name": "{long}"}}"#)),
        ("of a target", r#""user_input_name": "a""#, format!(r#""user_input_name": "{long}""#)),
    ];
    for (what, part, by) in spoilt {
        assert_refused(what, "too_large", &good().replace(part, &by));
    }
    let bare = node("torch.ops.higher_order.cond", &[], "y");
    let body = graph(&[], &["a"], &[]);
    let argument = format!(r#"{{"name": "", "arg": {{"as_graph": {{"name": "{long}", "graph": {body}}}}}}}"#);
    let call = bare.replace(r#""inputs": []"#, &format!(r#""inputs": [{argument}]"#));
    assert_refused("of a body", "too_large", &program(&[call], &["y"], &["y"]));
}

#[test]
fn chains_of_views_and_of_copies_take_time_by_their_length() {
    let n = 60_000;
    let names: Vec<_> = (0..n).map(|i| format!("v{i}")).collect();
    let before = |i: usize| if i == 0 { "x" } else { names[i - 1].as_str() };
    let outputs: Vec<_> = ["a", "b"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let values = &outputs[2..];
    let views: Vec<_> =
        (0..n).map(|i| node("torch.ops.aten.view.default", &[("self", before(i))], &names[i])).collect();
    let copies: Vec<_> = (0..n).map(|i| copy("a", before(i), &names[i])).collect();
    for nodes in [views, copies] {
        let start = std::time::Instant::now();
        model::read(&program(&nodes, &outputs, values), Form::Portable).unwrap();
        assert!(start.elapsed().as_secs() < 10); // by the square it would be a minute
    }
}
