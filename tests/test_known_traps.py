"""Every public report of the data's known-traps.md that concerns what is built today has a test: which, stands here.

Sections of later work (vision, servers, large models) are not asked for yet.
"""

import ast
import re
from functools import cache

import pytest

from tests.data import DATA, ROOT, needs_data

SECTIONS = "ACEFGHIKMR"
_CONFIG, _GRAPH, _CACHE = "lower/test_config_traps.py", "lower/test_graph_traps.py", "traps/test_cache.py"
_LIMITS, _ENDS, _CHOICE = "traps/test_config.py", "traps/test_endings.py", "traps/test_sampling.py"
_TEXT, _CHAT, _ROWS = "traps/test_streaming.py", "runtime/test_chat_model.py", "runtime/test_rows.py"
_PROVIDERS, _MEMORY, _REAL = "runtime/test_providers.py", "runtime/test_memory.py", "test_real_packages.py"
TESTS: dict[str, tuple[tuple[str, str], ...]] = {
    "A1": ((_CONFIG, "test_a1_end_ids_are_one_or_many"), (_ENDS, "test_f1_any_of_two_end_ids_stops")),
    "A2": ((_CONFIG, "test_a2_other_ids_may_be_lists_too"),),
    "A3": ((_GRAPH, "test_a3_no_stage_produces_embeddings"), (_REAL, "test_refused_with_reason_and_remedy")),
    "A4": (
        (_CONFIG, "test_a4_b1_the_type_decides_nothing"),
        (_CONFIG, "test_a4_a_folder_is_never_parsed_as_a_model"),
    ),
    "A5": (
        (_CONFIG, "test_a5_cache_bytes_are_known_before_anything_is_allocated"),
        (_LIMITS, "test_a5_a_long_context_takes_memory_as_it_is_used"),
        (_LIMITS, "test_a5_a_capacity_that_does_not_fit_is_refused_with_its_bytes"),
    ),
    "A6": (
        (_LIMITS, "test_a6_the_terms_are_kept_apart"),
        (_LIMITS, "test_a6_max_length_over_context_length_is_warned_of"),
    ),
    "A8": (
        (_CONFIG, "test_a8_every_documented_search_key_is_known"),
        (_CHOICE, "test_a8_no_repeat_ngram_of_the_package_breaks_the_loop"),
        (_CHOICE, "test_a8_every_search_key_changes_the_tokens_or_is_spoken_of"),
    ),
    "A10": ((_LIMITS, "test_a10_every_missing_file_is_listed_at_once"),),
    "A11": (("runtime/test_tokenizer.py", "test_a11_merges_as_pairs_and_as_strings"),),
    "C1": ((_CACHE, "test_c1_float16_caches_with_float32_logits"), (_GRAPH, "test_c1_c2_every_dtype_is_the_graphs")),
    "C2": (
        (_CACHE, "test_c2_logits_of_every_float_type"),
        ("runtime/test_sample.py", "test_c2_every_float_type_becomes_float32"),
    ),
    "C4": (
        (_GRAPH, "test_c4_head_size_is_the_graphs_and_a_conflict_is_named"),
        (_CACHE, "test_c4_head_size_is_not_hidden_over_heads"),
    ),
    "C5": ((_CACHE, "test_c5_layers_differ_in_head_size_and_heads"),),
    "C6": ((_CACHE, "test_c6_gaps_in_the_layer_numbers"),),
    "C7": (
        (_CACHE, "test_c7_appending_caches_with_one_symbol_are_refused_naming_both"),
        (_CACHE, "test_c7_in_place_caches_with_one_symbol_run"),
    ),
    "C9": (
        (_CACHE, "test_c9_a_fixed_past_length_ends_generations_cleanly"),
        (_CACHE, "test_c9_rows_of_a_fixed_capacity_end_one_by_one"),
    ),
    "C10": (
        (_CACHE, "test_c10_capacity_is_not_valid_length"),
        (_CACHE, "test_c10_past_and_present_share_memory_only_where_the_operator_allows"),
        (_GRAPH, "test_c10_in_place_only_where_the_operator_allows"),
    ),
    "C11": (
        (_CACHE, "test_c11_a_request_sees_nothing_of_the_one_before"),
        (_CACHE, "test_c11_a_reset_reaches_the_state_of_every_stage"),
    ),
    "E1": ((_ROWS, "test_e1_lengths_three_and_five"),),
    "E2": (
        (_REAL, "test_e2_a_length_switch_is_warned_of_with_its_threshold"),
        (_REAL, "test_e2_a_rows_tables_do_not_depend_on_its_neighbours"),
    ),
    "E3": ((_CACHE, "test_e3_three_axis_positions_of_text_are_three_copies"),),
    "F1": (
        (_ENDS, "test_f1_any_of_two_end_ids_stops"),
        (_ENDS, "test_f1_end_ids_of_every_file_count_and_are_told"),
    ),
    "F2": ((_ENDS, "test_f2_each_token_comes_once_and_the_end_token_is_no_text"),),
    "F3": ((_ENDS, "test_f3_stop_strings_are_strings"),),
    "F4": ((_ENDS, "test_f4_a_stop_string_over_several_tokens"),),
    "F5": ((_ENDS, "test_f5_text_before_the_stop_inside_one_token_is_streamed"),),
    "F7": ((_ENDS, "test_f7_a_users_stop_joins_the_packages_own"),),
    "G1": ((_CHOICE, "test_g1_a_repetition_penalty_counts_a_token_once"), (_CHOICE, "test_g1_the_window_is_optional")),
    "G3": (
        (_CHOICE, "test_g3_a_seed_holds_beside_requests_without_one"),
        (_CHOICE, "test_g3_requests_interleaved_keep_their_own_generators"),
    ),
    "G4": ((_CHOICE, "test_g4_penalties_stay_with_their_row"),),
    "G6": (
        (_CHOICE, "test_g6_rows_of_the_head_without_a_token_are_never_chosen"),
        (_CHOICE, "test_g6_also_at_the_workflow_level"),
    ),
    "G7": (
        ("read/test_graph_facts.py", "test_random_operators"),
        (_CHOICE, "test_g7_a_random_operator_in_a_graph_is_warned_of_when_compiled"),
    ),
    "H1": (
        (_TEXT, "test_h1_a_character_over_tokens_comes_whole"),
        (_TEXT, "test_h1_a_character_that_stays_unfinished_is_replaced_once"),
    ),
    "H2": ((_TEXT, "test_h2_spaces_stay"),),
    "H3": (
        (_TEXT, "test_h3_invalid_bytes_are_replaced_and_the_text_goes_on"),
        (_TEXT, "test_h3_invalid_bytes_of_a_byte_level_vocabulary"),
    ),
    "H6": ((_TEXT, "test_h6_special_tokens_are_the_callers_choice"), (_TEXT, "test_h6_a_stop_string_may_be_a_tag")),
    "I1": (
        (_CHAT, "test_i1_features_of_real_templates"),
        ("runtime/test_chat_template.py", "test_i1_template_features"),
    ),
    "I2": ((_CHAT, "test_i2_a_date_helper"), (_CHAT, "test_i2_an_unknown_helper_is_never_passed_over")),
    "I4": (
        (_CHAT, "test_i4_a_template_in_a_file_of_its_own"),
        (_CHAT, "test_i4_named_templates"),
        (_CHAT, "test_i4_without_a_template_chat_is_refused_and_completion_works"),
    ),
    "I5": ((_CHAT, "test_i5_a_refused_system_message_carries_the_templates_words"),),
    "I6": ((_CHAT, "test_i6_a_system_message_after_the_first_place"),),
    "I8": (
        (_CHAT, "test_i8_the_start_token_comes_once"),
        (_CHAT, "test_i8_a_real_double_prefix_stays"),
        (_CHAT, "test_i8_checking_a_package_warns_of_two_start_tokens"),
    ),
    "I10": ((_CHAT, "test_i10_strip_flags_are_heeded"), (_CHAT, "test_i10_ids_without_specials")),
    "K1": (
        (_ROWS, "test_k1_lengths_two_five_and_nine_in_any_order"),
        (_ROWS, "test_k1_rows_fill_the_context_one_by_one"),
    ),
    "K2": (("traps/test_encoder_decoder.py", "test_k2_padding_changes_nothing"),),
    "K5": ((_ROWS, "test_k5_a_second_request_during_the_first"),),
    "M1": ((_MEMORY, "test_m1_two_hundred_generations_leave_memory_flat"),),
    "M2": (("images/test_package.py", "test_m2_two_hundred_pictures_leave_memory_flat"),),
    "M4": ((_MEMORY, "test_m4_any_order_of_leaving_is_clean"),),
    "R1": (
        (_PROVIDERS, "test_r1_a_provider_that_the_user_names_is_strict"),
        (_PROVIDERS, "test_r1_a_provider_that_the_package_names_is_a_preference"),
        (_PROVIDERS, "test_r1_a_session_that_falls_back_is_an_error"),
    ),
    "R2": ((_PROVIDERS, "test_r2_spellings_are_one_name"), (_PROVIDERS, "test_r2_an_unknown_name_is_an_error")),
}  # fmt: skip
"""Row -> (file under tests/, test function)."""


@cache
def functions(file: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef))


@needs_data
def test_every_row_has_a_test() -> None:
    text = (DATA / "reference" / "known-traps.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE)
    asked = {row for row in rows if row[0] in SECTIONS}
    assert len(asked) > 45
    assert asked == set(TESTS)


@pytest.mark.parametrize("row", TESTS)
def test_the_named_tests_exist(row: str) -> None:
    assert TESTS[row]
    missing = [f"{file}::{name}" for file, name in TESTS[row] if name not in functions(file)]
    assert not missing


@pytest.mark.parametrize("row", TESTS)
def test_one_of_them_carries_the_rows_number(row: str) -> None:
    """So that a report's number finds its test by name."""
    assert any(row.lower() in name.split("_") for _, name in TESTS[row])
