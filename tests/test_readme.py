"""The README tells the truth: its commands run, its tables name every option, its text is kept."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from conftest import CLEAN, Run

from im2rec.cli import cli

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
COMMANDS = cli.commands


def section(title: str) -> str:
    """The text under a heading, up to the next one of its level."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    assert match, title
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_stands_in_its_section(name: str) -> None:
    documented = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", section(name)))
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            for spelling in [*parameter.opts, *parameter.secondary_opts]:
                assert spelling in documented, f"{name} {spelling}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_in_a_section_is_made_up(name: str) -> None:
    known = {"--help", "--no-pack-label"}  # every command's; pack's, spoken of under verify
    for parameter in COMMANDS[name].params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    tables = "".join(re.findall(r"^\|.*$", section(name), re.M))
    assert set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", tables)) <= known


def test_the_defaults_in_the_tables_are_the_defaults() -> None:
    pack = section("pack")
    defaults = {parameter.name: parameter.default for parameter in COMMANDS["pack"].params}
    assert f"default {defaults['max_pixels']}" in pack
    assert f"{defaults['interpolation']} (default)" in pack
    assert f"stops; default {defaults['max_failures']}" in pack


def test_the_transcript_is_what_the_commands_print(tmp_path: Path) -> None:
    script = README.parent / "examples" / "quickstart.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "quickstart")],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    match = re.search(r"^```console\n(.*?)^```", TEXT, re.M | re.S)
    assert match
    assert done.stdout == match[1]
    assert done.stderr == ""


def test_the_python_in_it_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = "".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "README", str(README), 0)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test)
    assert runner.summarize(verbose=False) == (0, 10)


TASKS = re.findall(r"`(im2rec [^`]*)`", section("By task"))


def test_the_task_table_was_found() -> None:
    assert len(TASKS) >= 18


BOXES = """{"images": [{"id": 1, "file_name": "ant/ant_0.jpg"}],
"annotations": [{"image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 10]}],
"categories": [{"id": 1, "name": "ant"}]}"""


def test_every_command_of_the_task_table_runs(tmp_path: Path, im2rec: Run) -> None:
    """In the order of the table, in one folder, as a reader would try them."""
    (tmp_path / "photos").symlink_to(CLEAN)
    (tmp_path / "data").mkdir()
    (tmp_path / "old.classes.txt").write_text("ant\nbee\ncat\ndog\n", encoding="utf-8")
    (tmp_path / "labels.csv").write_text("ant/ant_0.jpg,cat\n", encoding="utf-8")
    (tmp_path / "boxes.json").write_text(BOXES, encoding="utf-8")
    for command in TASKS:
        words = shlex.split(command)[1:]
        if "--no-recursive" in words:
            words[-2:] = ["data/flat", "photos/ant"]
        if words[0] == "inspect" and not (tmp_path / "data/set.rec").exists():
            im2rec("pack", "data/set", "photos")
        done = im2rec(*words)
        assert "error" not in done.stderr, command


# Which tests make the fault of each row of the table "What happens when", in its order.
WHEN = [
    ["test_signals.py::test_a_worker_killed_at_each_stage_is_an_error",
     "test_faults.py::test_a_killed_worker_is_an_error_that_names_the_images_in_hand"],
    ["test_faults.py::test_a_worker_that_runs_out_of_memory_names_its_image"],
    ["test_faults.py::test_an_image_that_comes_to_no_end_is_an_error_that_names_it"],
    ["test_signals.py::test_before_publishing_the_older_set_stays",
     "test_signals.py::test_what_is_being_published_is_published_whole",
     "test_faults.py::test_a_signal_ends_the_run_and_leaves_nothing"],
    ["test_faults.py::test_workers_end_with_a_killed_parent_and_the_next_run_clears_up"],
    ["test_resume.py::test_killed_at_random_moments_the_set_is_the_same"],
    ["test_faults.py::test_a_full_file_system_is_an_error_and_leaves_nothing",
     "test_faults.py::test_a_full_disk_is_an_error_that_names_the_file"],
    ["test_faults.py::test_a_work_folder_that_vanishes_is_an_error"],
    ["test_pack.py::test_files_that_cannot_be_read_fail_with_the_reason"],
    ["test_part.py::test_a_file_that_grows_or_shrinks_while_it_is_read_is_no_image"],
    ["test_faults.py::test_a_closed_pipe_ends_inspect_in_silence"],
    ["test_faults.py::test_what_cannot_be_told_changes_no_exit_code"],
    ["test_faults.py::test_without_shared_memory_the_work_is_done"],
    ["test_pack.py::test_a_process_with_threads_is_not_forked"],
    ["test_faults.py::test_a_second_run_on_the_same_prefix_fails_at_once"],
    ["test_damage.py::test_no_cut_is_kept_with_other_pixels"],
    ["test_damage.py::test_no_cut_filled_up_with_zeros_is_kept_with_other_pixels",
     "test_damage.py::test_a_block_of_zeros_is_seen"],
    ["test_damage.py::test_changed_bytes_are_seen_where_they_can_be"],
    ["test_damage.py::test_a_bomb_is_refused_in_plain_words"],
    ["test_damage.py::test_every_turn_of_every_colour_mode",
     "test_damage.py::test_each_colour_mode_is_pillow_s_picture",
     "test_damage.py::test_16_bits_are_kept_or_halved",
     "test_damage.py::test_a_colour_profile_changes_no_pixel"],
    ["test_damage.py::test_what_pillow_alone_can_decode_is_not_called_damaged",
     "test_damage.py::test_a_bmp_of_runs_is_packed_right_or_not_at_all",
     "test_damage.py::test_a_pnm_is_packed_right_or_not_at_all"],
    ["test_damage.py::test_each_word_of_a_codec_comes_with_its_picture"],
    ["test_hostile.py::test_a_path_out_of_root_is_refused"],
    ["test_hostile.py::test_what_is_no_image_file_is_left_out"],
    ["test_hostile.py::test_a_hostile_row_is_told_with_its_line",
     "test_hostile.py::test_a_row_of_100_mb_is_told_in_little_memory"],
    ["test_hostile.py::test_a_length_that_lies_takes_no_memory",
     "test_hostile.py::test_a_hostile_line_of_an_index_is_told",
     "test_hostile.py::test_records_that_all_lead_to_one_end_take_no_time_of_each_other"],
    ["test_byte_flips.py::test_damage_in_framing_is_told_at_its_record",
     "test_byte_flips.py::test_damage_in_an_index_is_told_there",
     "test_byte_flips.py::test_damage_in_a_manifest_is_told_there_and_first"],
    ["test_byte_flips.py::test_an_images_bits_are_told_by_the_manifests_sha256_alone",
     "test_byte_flips.py::test_decode_tells_what_the_codec_can_tell"],
]  # fmt: skip


def test_every_row_of_what_happens_when_is_held_by_a_test() -> None:
    rows = re.findall(r"^\| ([^|]*(?:\\\|[^|]*)*) \|", section("What happens when"), re.M)
    assert len(rows) == len(WHEN)
    for tests in WHEN:
        for test in tests:
            file, name = test.split("::")
            text = (Path(__file__).parent / file).read_text(encoding="utf-8")
            assert f"\ndef {name}(" in text, test


# Which tests of test_readers.py hold each cell of the table "Readers", row by row, in the order of
# its columns; None where nothing was or can be run. The sets of all of them have cut records.
IN_TURN = ["test_mxnet_reads_records_in_turn"]
BY_KEY = ["test_mxnet_reads_records_by_key"]
ITER = ["test_image_record_iter"]
ITER_ARRAYS = ["test_image_record_iter_reads_label_arrays"]
IMAGE_ITER = ["test_image_iter"]
IMAGE_ITER_PARTS = ["test_image_iter_in_parts_and_shuffled"]
IMAGE_ITER_ARRAYS = ["test_image_iter_reads_label_arrays"]
DET = ["test_image_det_record_iter"]
DET_ITER = ["test_image_det_iter"]
DATASET = ["test_gluon_dataset"]
DALI = ["test_dali"]
DALI_PARTS = ["test_dali_in_parts_and_shuffled"]
TORCH_KEY = ["test_torch_workers_read_by_key"]
TORCH_TURN = ["test_torch_workers_read_in_turn"]
READERS: dict[str, list[list[str] | None]] = {
    "`MXRecordIO`": [IN_TURN, None, IN_TURN, None, None, IN_TURN, IN_TURN],
    "`MXIndexedRecordIO`": [BY_KEY, BY_KEY, BY_KEY, None, BY_KEY, BY_KEY, BY_KEY],
    "`ImageRecordIter`": [
        ITER,
        ITER,
        ITER,
        ["test_image_record_iter_in_parts"],
        ["test_image_record_iter_shuffled"],
        ITER_ARRAYS,
        ITER,
    ],
    "`ImageIter`": [
        IMAGE_ITER,
        IMAGE_ITER,
        [*IMAGE_ITER_ARRAYS, "test_image_iter_takes_no_shards"],
        IMAGE_ITER_PARTS,
        IMAGE_ITER_PARTS,
        IMAGE_ITER_ARRAYS,
        IMAGE_ITER,
    ],
    "`ImageDetRecordIter`": [DET, DET, DET, None, None, DET, DET],
    "`ImageDetIter`": [DET_ITER, DET_ITER, DET_ITER, None, None, DET_ITER, DET_ITER],
    "`ImageRecordDataset`": [
        DATASET,
        DATASET,
        DATASET,
        None,
        ["test_gluon_data_loader_with_workers"],
        DATASET,
        DATASET,
    ],
    "`readers.mxnet`": [
        DALI,
        DALI,
        [
            *DALI,
            "test_dali_with_indexes_joined_by_cat_loses_shards_without_a_word",
            "test_dali_takes_one_index_only",
        ],
        DALI_PARTS,
        DALI_PARTS,
        DALI,
        [*DALI, "test_mxnet_reads_a_header_that_is_cut_and_dali_does_not"],
    ],
    "`im2rec.recordio`": [
        TORCH_TURN,
        [*TORCH_KEY, *TORCH_TURN],
        None,
        TORCH_TURN,
        TORCH_KEY,
        None,
        [*TORCH_KEY, *TORCH_TURN],
    ],
    "rocAL": [None] * 7,
}
NOTHING_RUN = {"not run", "no such thing", "takes none"}


def test_every_cell_of_the_table_of_readers_is_held_by_a_test() -> None:
    lines = [line for line in section("Readers").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][1:] == [
        "one file", "index", "shards", "parts", "shuffle", "label arrays", "cut records",
    ]  # fmt: skip
    text = (Path(__file__).parent / "test_readers.py").read_text(encoding="utf-8")
    for (reader, tested), (name, *cells) in zip(READERS.items(), rows[2:], strict=True):
        assert reader in name
        for tests, cell in zip(tested, cells, strict=True):
            assert (tests is None) == (cell in NOTHING_RUN), (name, cell)
            for test in tests or []:
                assert f"\ndef {test}(" in text, test


def test_the_versions_in_the_table_of_readers_are_those_that_are_installed() -> None:
    environments = (Path(__file__).parent / "readers" / "environments.py").read_text("utf-8")
    pinned = dict(re.findall(r'"(mxnet|nvidia-dali-cuda120|torch)==([^"]+)"', environments))
    readers = {"MXNet": "mxnet", "NVIDIA DALI": "nvidia-dali-cuda120", "PyTorch": "torch"}
    named = re.findall(r"^\| (MXNet|NVIDIA DALI|PyTorch) (\S+)", section("Readers"), re.M)
    assert {name for name, _ in named} == readers.keys()
    assert all(pinned[readers[name]] == version for name, version in named)
