package doctor

import (
	"testing"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// stack returns frames from "file:function" pairs, leaf first.
func stack(pairs ...string) []pystack.Frame {
	var out []pystack.Frame
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, pystack.Frame{File: pairs[i], Func: pairs[i+1], Qual: pairs[i+1]})
	}
	return out
}

const (
	site      = "/venv/lib/python3.11/site-packages"
	lib       = "/usr/lib/python3.11"
	torchData = site + "/torch/utils/data"
)

func TestLook(t *testing.T) {
	worker := []string{torchData + "/_utils/worker.py", "_worker_loop", lib + "/multiprocessing/process.py", "run", lib + "/multiprocessing/process.py", "_bootstrap",
		lib + "/multiprocessing/popen_fork.py", "_launch", torchData + "/dataloader.py", "__init__", torchData + "/dataloader.py", "_get_iterator", "/home/u/train.py", "<module>"}
	trainer := []string{torchData + "/dataloader.py", "_next_data", torchData + "/dataloader.py", "__next__", "/home/u/train.py", "<module>"}
	for _, c := range []struct {
		name   string
		frames []pystack.Frame
		part   part
		duty   duty
		loader string
	}{
		{"a step", stack("/home/u/train.py", "step", "/home/u/train.py", "<module>"), partStep, dutyUnknown, ""},
		{"torch waits for workers", stack(append([]string{lib + "/selectors.py", "select", lib + "/multiprocessing/connection.py", "wait", lib + "/multiprocessing/connection.py", "_poll",
			lib + "/multiprocessing/connection.py", "poll", lib + "/multiprocessing/queues.py", "get", torchData + "/dataloader.py", "_try_get_data"}, trainer...)...), partWait, dutyTrainer, "torch"},
		{"torch rebuilds tensors", stack(append([]string{site + "/torch/multiprocessing/reductions.py", "rebuild_storage_fd", lib + "/multiprocessing/queues.py", "get",
			torchData + "/dataloader.py", "_try_get_data"}, trainer...)...), partPickle, dutyTrainer, "torch"},
		{"torch without workers", stack(append([]string{"/home/u/train.py", "__getitem__", torchData + "/_utils/fetch.py", "fetch"}, trainer...)...), partFetch, dutyTrainer, "torch"},
		{"a worker without work", stack(append([]string{lib + "/multiprocessing/connection.py", "poll", lib + "/multiprocessing/queues.py", "get"}, worker...)...), partWait, dutyWorker, "torch"},
		{"a worker decodes", stack(append([]string{site + "/PIL/ImageFile.py", "load", site + "/PIL/Image.py", "convert", site + "/torchvision/datasets/folder.py", "pil_loader",
			site + "/torchvision/datasets/folder.py", "__getitem__", torchData + "/_utils/fetch.py", "<listcomp>", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partDecode, dutyWorker, "torch"},
		{"a worker collates", stack(append([]string{torchData + "/_utils/collate.py", "collate_tensor_fn", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partCollate, dutyWorker, "torch"},
		{"a user's collate function", stack(append([]string{"/home/u/train.py", "pad", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partCollate, dutyWorker, "torch"},
		{"a user's dataset", stack(append([]string{"/home/u/train.py", "__getitem__", torchData + "/_utils/fetch.py", "<listcomp>", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partFetch, dutyWorker, "torch"},
		{"a user's augmentation", stack(append([]string{"/home/u/train.py", "augment", "/home/u/train.py", "__getitem__", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partTransform, dutyWorker, "torch"},
		{"a process of the user's own", stack("/home/u/train.py", "spin", "/home/u/train.py", "feed", lib+"/multiprocessing/process.py", "run", lib+"/multiprocessing/process.py", "_bootstrap",
			lib+"/multiprocessing/popen_fork.py", "_launch", "/home/u/train.py", "<module>"), partFetch, dutyWorker, ""},
		{"a feeder", stack(site+"/torch/multiprocessing/reductions.py", "reduce_storage", lib+"/multiprocessing/queues.py", "_feed", lib+"/threading.py", "run"), partPickle, dutyFeeder, ""},
		{"webdataset in a worker", stack(append([]string{site + "/webdataset/tariterators.py", "tar_file_iterator", site + "/webdataset/filters.py", "_shuffle", torchData + "/_utils/fetch.py", "fetch"}, worker...)...), partRead, dutyWorker, "webdataset"},
		{"Stoker", stack(site+"/stoker/_connection.py", "next", site+"/stoker/_loader.py", "__next__", "/home/u/train.py", "<module>"), partUnknown, dutyTrainer, "stoker"},
		{"a loop that prepares its batches", stack("/home/u/train.py", "<listcomp>", "/home/u/train.py", "prepare", "/home/u/train.py", "main"), partPrepare, dutyUnknown, ""},
		{"a progress bar between does not hide the loop's step", stack(site+"/torch/nn/modules/conv.py", "run", "/home/u/train.py", "main"), partStep, dutyUnknown, ""},
		{"an augmentation within the step", stack(site+"/torchvision/transforms/functional.py", "rotate", "/home/u/train.py", "train_step", "/home/u/train.py", "main"), partStep, dutyUnknown, ""},
		{"a checkpoint", stack(site+"/torch/serialization.py", "_save", site+"/torch/serialization.py", "save", "/home/u/train.py", "main"), partStep, dutyUnknown, ""},
		{"a model that prepares its inputs", stack("/home/u/model.py", "prepare_inputs", "/home/u/model.py", "forward", "/home/u/train.py", "main"), partStep, dutyUnknown, ""},
		{"imports", stack("<frozen importlib._bootstrap>", "_find_and_load", "/home/u/train.py", "<module>"), partImport, dutyUnknown, ""},
		{"a rank that multiprocessing started", stack(append(trainer[:4:4], lib+"/multiprocessing/process.py", "_bootstrap")...), partUnknown, dutyTrainer, "torch"},
	} {
		v := newViewer().look(c.frames)
		if v.part != c.part || v.duty != c.duty || v.loader != c.loader || !v.known {
			t.Errorf("%s: part %s duty %d loader %q, want %s %d %q", c.name, partNames[v.part], v.duty, v.loader, partNames[c.part], c.duty, c.loader)
		}
	}
	if v := newViewer().look(nil); v.known {
		t.Error("no frames are known")
	}
}

// The line in which the loop requests a batch is the line from which the loader was called.
func TestAsks(t *testing.T) {
	frames := stack(lib+"/multiprocessing/queues.py", "get", torchData+"/dataloader.py", "_next_data", torchData+"/dataloader.py", "__next__", "/home/u/train.py", "main", "/home/u/train.py", "<module>")
	for i := range frames {
		frames[i].Line = 10 + i
	}
	v := newViewer().look(frames)
	if v.asks != (loopAt{place{"/home/u/train.py", 13}, "main"}) || v.leaf != (place{lib + "/multiprocessing/queues.py", 10}) {
		t.Errorf("asks %v, leaf %v", v.asks, v.leaf)
	}
	if got := trainerCause(moment{state: 'R', view: view{part: partRelease, duty: dutyTrainer, known: true}}, false); got != causeHandoff {
		t.Errorf("freeing a batch: %d", got)
	}
}

func TestCauses(t *testing.T) {
	in := func(p part, d duty) view { return view{part: p, duty: d, loader: "torch", known: true} }
	for _, c := range []struct {
		name    string
		m       moment
		worker  cause
		trainer cause
	}{
		{"runs in a transform", moment{state: 'R', view: in(partTransform, dutyWorker)}, causeCPU, causeCPU},
		{"runs in collate", moment{state: 'R', view: in(partCollate, dutyTrainer)}, causeHandoff, causeHandoff},
		{"waits for a disk", moment{state: 'D', block: blockStorage, view: in(partFetch, dutyTrainer)}, causeStorage, causeStorage},
		{"waits for a socket", moment{state: 'S', block: blockNetwork, view: in(partRead, dutyTrainer)}, causeNetwork, causeNetwork},
		{"waits in a queue", moment{state: 'S', block: blockPipe, view: in(partWait, dutyTrainer)}, causeIdle, causeWait},
		{"waits in a queue while its feeder pickles", moment{state: 'S', block: blockLock, view: in(partWait, dutyWorker), others: causeHandoff}, causeHandoff, causeWait},
		{"unpickles", moment{state: 'R', view: in(partWait, dutyTrainer)}, causeHandoff, causeHandoff},
		{"reclaims memory", moment{state: 'D', block: blockMemory, view: in(partFetch, dutyWorker)}, causeMemory, causeMemory},
		{"steps", moment{state: 'S', block: blockSleep, view: in(partStep, dutyUnknown)}, causeIdle, causeStep},
		{"spins in the step", moment{state: 'R', view: in(partStep, dutyUnknown)}, causeCPU, causeStep},
		{"reads the pipe of a command", moment{state: 'S', block: blockPipe, view: in(partRead, dutyWorker)}, causeNetwork, causeWait},
	} {
		if got := workerCause(c.m); got != c.worker {
			t.Errorf("worker %s: %d, want %d", c.name, got, c.worker)
		}
		if got := trainerCause(c.m, false); got != c.trainer {
			t.Errorf("trainer %s: %d, want %d", c.name, got, c.trainer)
		}
	}
	// Without frames, the object of the wait decides.
	for block, want := range map[blocker]cause{blockSleep: causeStep, blockPipe: causeWait, blockLock: causeWait, blockStorage: causeStorage, blockDevice: causeStep} {
		if got := trainerCause(moment{state: 'S', block: block}, true); got != want {
			t.Errorf("without frames, block %d: %d, want %d", block, got, want)
		}
	}
}

// A user's collate function puts examples together, or computes them first: hand-off
// or work.
func TestCollateThatComputes(t *testing.T) {
	worker := []string{torchData + "/_utils/fetch.py", "fetch", torchData + "/_utils/worker.py", "_worker_loop", lib + "/multiprocessing/process.py", "_bootstrap"}
	for _, c := range []struct {
		name   string
		frames []string
		line   string
		want   part
	}{
		{"it finds words", []string{"/home/u/t.py", "<listcomp>", "/home/u/t.py", "collate"}, "    rows = [[WORDS[t] for t in PATTERN.findall(text)] for text in texts]", partTransform},
		{"it makes a tensor", []string{"/home/u/t.py", "collate"}, "    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])", partCollate},
		{"its source cannot be read", []string{"/home/u/t.py", "collate"}, "", partCollate},
		{"it stacks by torch", []string{torchData + "/_utils/collate.py", "default_collate", "/home/u/t.py", "collate"}, "", partCollate},
		{"it pads by torch", []string{site + "/torch/nn/utils/rnn.py", "pad_sequence", "/home/u/t.py", "collate"}, "", partCollate},
		{"it calls what tokenises", []string{"/home/u/t.py", "tokenize", "/home/u/t.py", "collate"}, "", partTransform},
		{"it calls what computes", []string{"/home/u/t.py", "features", "/home/u/t.py", "Batch.__call__"}, "", partTransform},
		{"it calls what pads", []string{"/home/u/t.py", "pad_to", "/home/u/t.py", "collate"}, "", partCollate},
		{"it pads", []string{"/home/u/t.py", "fill", "/home/u/t.py", "pad_batch"}, "", partCollate},
		{"a library works for it", []string{lib + "/re.py", "findall", "/home/u/t.py", "collate"}, "", partTransform},
		{"a library's own", []string{site + "/transformers/data/data_collator.py", "torch_call", site + "/transformers/data/data_collator.py", "__call__"}, "", partCollate},
	} {
		v := newViewer().look(stack(append(c.frames, worker...)...)).toldByLine(c.line)
		if v.part != c.want || v.duty != dutyWorker {
			t.Errorf("%s: %s, want %s", c.name, partNames[v.part], partNames[c.want])
		}
	}
}

// A collate function that mostly computes counts as that with all that it does.
func TestCollateIsOnePiece(t *testing.T) {
	var c collates
	put, compute := view{part: partCollate, ownCollate: true}, view{part: partTransform, ownCollate: true}
	if c.judge(put).part != partCollate {
		t.Error("the first look decides")
	}
	for range 4 {
		c.judge(compute)
	}
	if c.judge(put).part != partTransform || c.judge(compute).part != partTransform {
		t.Error("it mostly computes")
	}
	for range 9 {
		c.judge(put)
	}
	if c.judge(put).part != partCollate || c.judge(compute).part != partTransform {
		t.Error("it mostly puts together")
	}
}
