package doctor

import (
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// A part is the current work of a Python thread, derived from its stack.
type part uint8

const (
	partUnknown   part = iota // no frames, or no telling frame
	partStep                  // outside of any loader
	partImport                // importing modules
	partWait                  // waiting for a batch or for work in a queue
	partPut                   // giving a batch to a queue
	partFetch                 // the dataset's own code
	partRead                  // opening and reading
	partDecode                // decoding
	partTransform             // transforming
	partCollate               // making a batch of examples
	partPickle                // pickling, unpickling, shared memory, moving descriptors
	partPin                   // copying into pinned memory
	partManage                // starting and ending workers
	partPrepare               // the training loop's own code between the loader and the step
	partRelease               // freeing the batch before, in the statement that asks for the next
	numParts
)

var partNames = [numParts]string{
	"unknown", "step", "import", "queue", "put", "fetch", "read", "decode", "transform",
	"collate", "pickle", "pin", "workers' start", "prepare batch", "free old batch",
}

// handoff reports whether a part belongs to handing a batch over.
func (p part) handoff() bool {
	return p == partPut || p == partCollate || p == partPickle || p == partPin || p == partManage || p == partPrepare || p == partRelease
}

// A duty is the purpose of a thread.
type duty uint8

const (
	dutyUnknown duty = iota
	dutyTrainer      // in a loader's next, called by the training loop
	dutyWorker       // makes batches in a process or thread of its own
	dutyFeeder       // sends a worker's batches
	dutyPin          // pins batches
)

// view is the meaning of one thread's frames.
type view struct {
	part       part
	duty       duty
	loader     string // kind, as in Loader.Kind; "" when none was seen
	where      string // function at work, for evidence: "Dataset.__getitem__ (train.py)"
	user       bool   // where is a function of the user
	known      bool   // there were frames
	leaf       place  // the innermost frame
	asks       loopAt // the place of the training loop that requests a batch, during a request
	loop       loopAt // outside any loader: the training loop, if known
	body       int    // its current line; 0 if it is not on the stack
	collective string // outside any loader: the function that exchanges data with other ranks
	saves      bool   // of steps: a checkpoint or the like is being written
	learns     bool   // of steps: a model learns, and is not only used
	steps      bool   // outside of any loader: a model, an optimizer or the like is on the stack
	rests      bool   // outside any loader: it waits for the work of other threads
	aside      aside  // in a thread of a pool: whether that trains
	ownCollate bool   // in a collate function of the user's own
	byLine     bool   // of that: the line that runs tells whether it makes the batch or computes examples
}

// A place is a line of a source file.
type place struct {
	file string
	line int
}

// A rule gives the meaning of a frame in a file. Funcs lists the functions to which it applies, separated by spaces; ""
// is all of them.
type rule struct {
	file   string // how the path ends
	funcs  string
	part   part
	duty   duty
	loader string
	// library marks the duty of a loader that may itself run inside another loader's worker. It counts only if no other
	// frame has a duty.
	library bool
}

// rules are tried from the leaf of a stack outwards. The first rule with a part sets the part, the first with a duty
// the duty, and the first with a loader the loader.
var rules = []rule{
	{file: "<frozen importlib._bootstrap>", part: partImport},
	{file: "<frozen importlib._bootstrap_external>", part: partImport},

	// PyTorch's DataLoader.
	{file: "/utils/data/_utils/worker.py", funcs: "_worker_loop", duty: dutyWorker, loader: "torch"},
	{file: "/utils/data/_utils/fetch.py", part: partFetch, loader: "torch"},
	{file: "/utils/data/_utils/collate.py", part: partCollate},
	{file: "/utils/data/_utils/pin_memory.py", funcs: "_pin_memory_loop do_one_step", duty: dutyPin, loader: "torch"},
	{file: "/utils/data/_utils/pin_memory.py", part: partPin},
	{file: "/utils/data/dataloader.py", funcs: "_shutdown_workers __del__ _get_iterator", part: partManage, duty: dutyTrainer, loader: "torch"},
	{file: "/utils/data/dataloader.py", funcs: "__next__ _next_data _next_index _get_data _try_get_data _process_data _try_put_index _reset __iter__", duty: dutyTrainer, loader: "torch"},
	{file: "/utils/data/sampler.py", part: partFetch},
	{file: "/torch/multiprocessing/reductions.py", part: partPickle},
	{file: "/torch/storage.py", funcs: "share_memory_ _share_memory_ _new_shared _share_fd_cpu_ _share_filename_cpu_ _new_shared_fd_cpu wrapper", part: partPickle},

	// Python's own queues and processes.
	{file: "/multiprocessing/queues.py", funcs: "_feed", part: partPickle, duty: dutyFeeder},
	{file: "/multiprocessing/queues.py", funcs: "put send", part: partPut},
	{file: "/multiprocessing/queues.py", funcs: "get recv", part: partWait},
	{file: "/multiprocessing/connection.py", funcs: "poll _poll wait", part: partWait},
	{file: "/multiprocessing/connection.py", funcs: "recv recv_bytes recv_bytes_into _recv _recv_bytes", part: partPickle},
	{file: "/multiprocessing/connection.py", funcs: "send send_bytes _send _send_bytes", part: partPut},
	{file: "/multiprocessing/connection.py", part: partPickle},
	{file: "/multiprocessing/reduction.py", part: partPickle},
	{file: "/multiprocessing/resource_sharer.py", part: partPickle},
	{file: "/multiprocessing/shared_memory.py", part: partPickle},
	{file: "/multiprocessing/popen_fork.py", funcs: "_launch __init__ wait poll", part: partManage},
	{file: "/multiprocessing/popen_spawn_posix.py", part: partManage},
	{file: "/multiprocessing/popen_forkserver.py", part: partManage},
	{file: "/multiprocessing/process.py", funcs: "start join", part: partManage},
	{file: "/multiprocessing/process.py", funcs: "_bootstrap", duty: dutyWorker},
	{file: "/multiprocessing/pool.py", funcs: "worker", duty: dutyWorker},
	{file: "/multiprocessing/pool.py", funcs: "next get wait", part: partWait, duty: dutyTrainer},
	{file: "/multiprocessing/util.py", funcs: "spawnv_passfds", part: partManage},
	{file: "/multiprocessing/synchronize.py", funcs: "wait", part: partWait},
	{file: "/threading.py", funcs: "wait _wait_for_tstate_lock join", part: partWait},
	{file: "/queue.py", funcs: "get", part: partWait},
	{file: "/queue.py", funcs: "put", part: partPut},
	{file: "/concurrent/futures/_base.py", funcs: "result result_iterator", part: partWait},
	{file: "/concurrent/futures/_base.py", funcs: "wait as_completed", part: partWait},
	{file: "/concurrent/futures/process.py", funcs: "_process_worker", duty: dutyWorker},
	{file: "/concurrent/futures/thread.py", funcs: "_worker", duty: dutyWorker},
	{file: "/pickle.py", part: partPickle},
	{file: "/copyreg.py", part: partPickle},
	{file: "/dill/_dill.py", part: partPickle},
	{file: "/cloudpickle/cloudpickle.py", part: partPickle},

	// Reading and decoding.
	{file: "/socket.py", part: partRead},
	{file: "/ssl.py", part: partRead},
	{file: "/asyncio/", part: partRead},
	{file: "/http/client.py", part: partRead},
	{file: "/urllib/request.py", part: partRead},
	{file: "/fsspec/", part: partRead},
	{file: "/botocore/", part: partRead},
	{file: "/urllib3/", part: partRead},
	{file: "/requests/", part: partRead},
	{file: "/aiohttp/", part: partRead},
	{file: "/tarfile.py", part: partRead},
	{file: "/zipfile.py", part: partRead},
	{file: "/zipfile/__init__.py", part: partRead},
	{file: "/gzip.py", part: partDecode},
	{file: "/json/decoder.py", part: partDecode},
	{file: "/pathlib.py", part: partRead},
	{file: "/genericpath.py", part: partRead},
	{file: "/h5py/", part: partRead},
	{file: "/numpy/lib/", funcs: "load read_array read_magic memmap", part: partRead},
	{file: "/lmdb/", part: partRead},
	{file: "/PIL/Image.py", funcs: "open _open_core preinit", part: partRead},
	{file: "/PIL/Image.py", part: partTransform},
	{file: "/PIL/ImageFile.py", part: partDecode},
	{file: "/PIL/", part: partDecode},
	{file: "/torchvision/io/", part: partDecode},
	{file: "/torchvision/transforms/", part: partTransform},
	{file: "/torchvision/datasets/folder.py", funcs: "pil_loader default_loader", part: partDecode},
	{file: "/albumentations/", part: partTransform},
	{file: "/kornia/", part: partTransform},
	{file: "/torchaudio/", part: partTransform},
	{file: "/transformers/tokenization", part: partTransform},

	// Other loaders.
	{file: "/stoker/_step.py", part: partStep},
	{file: "/stoker/_loader.py", duty: dutyTrainer, loader: "stoker"},
	{file: "/stoker/_connection.py", duty: dutyTrainer, loader: "stoker"},
	{file: "/webdataset/tariterators.py", part: partRead, loader: "webdataset"},
	{file: "/webdataset/gopen.py", part: partRead, loader: "webdataset"},
	{file: "/webdataset/cache.py", part: partRead, loader: "webdataset"},
	{file: "/webdataset/autodecode.py", part: partDecode, loader: "webdataset"},
	{file: "/webdataset/filters.py", funcs: "_batched default_collation_fn", part: partCollate, loader: "webdataset"},
	{file: "/webdataset/", part: partFetch, duty: dutyTrainer, loader: "webdataset", library: true},
	{file: "/grain/_src/", duty: dutyTrainer, loader: "grain", library: true},
	{file: "/tensorflow/python/data/ops/iterator_ops.py", part: partWait, duty: dutyTrainer, loader: "tf.data", library: true},
	{file: "/tensorflow_datasets/", duty: dutyTrainer, loader: "tf.data", library: true},
	{file: "/nvidia/dali/plugin/", part: partWait, duty: dutyTrainer, loader: "dali", library: true},
	{file: "/nvidia/dali/pipeline.py", funcs: "run outputs share_outputs", part: partWait, duty: dutyTrainer, loader: "dali", library: true},
	{file: "/ffcv/loader/epoch_iterator.py", funcs: "run run_pipeline", duty: dutyWorker, loader: "ffcv"},
	{file: "/ffcv/loader/epoch_iterator.py", part: partWait, duty: dutyTrainer, loader: "ffcv", library: true},
	{file: "/streaming/base/", duty: dutyTrainer, loader: "mosaic", library: true},
	{file: "/litdata/streaming/", duty: dutyTrainer, loader: "litdata", library: true},
	{file: "/spdl/pipeline/", duty: dutyTrainer, loader: "spdl", library: true},
	{file: "/datasets/iterable_dataset.py", part: partFetch, duty: dutyTrainer, loader: "datasets", library: true},
	{file: "/datasets/arrow_dataset.py", part: partFetch, duty: dutyTrainer, loader: "datasets", library: true},
	{file: "/torchdata/", duty: dutyTrainer, loader: "torch", library: true},
	{file: "/ray/data/_internal/execution/streaming_executor_state.py", funcs: "get_output_blocking", part: partWait, duty: dutyTrainer, loader: "ray", library: true},
	{file: "/ray/data/_internal/", duty: dutyTrainer, loader: "ray", library: true},
	{file: "/ray/data/iterator.py", duty: dutyTrainer, loader: "ray", library: true},
}

// words in the names of a user's functions; the first that fits counts.
var words = []struct {
	in   string
	part part
}{
	{"collate", partCollate}, {"decode", partDecode}, {"imread", partDecode}, {"tokenize", partTransform},
	{"transform", partTransform}, {"augment", partTransform}, {"normalize", partTransform},
	{"resize", partTransform}, {"crop", partTransform}, {"download", partRead}, {"read", partRead},
	{"load", partRead}, {"open", partRead}, {"fetch", partRead}, {"pickle", partPickle},
}

// A viewer recognises frames. It caches the rules of each file, because the same few hundred files come again in every
// sample.
type viewer struct {
	files map[string][]rule
}

func newViewer() *viewer { return &viewer{files: map[string][]rule{}} }

// maxFiles limits the cache of a viewer, in case a job makes up file names.
const maxFiles = 10000

func (v *viewer) rulesOf(file string) []rule {
	if found, ok := v.files[file]; ok {
		return found
	}
	var found []rule
	for _, r := range rules {
		switch {
		case strings.HasPrefix(r.file, "<"):
			if r.file != file {
				continue
			}
		case strings.HasSuffix(r.file, "/") || !strings.HasSuffix(r.file, ".py"):
			if !strings.Contains(file, r.file) {
				continue
			}
		case !strings.HasSuffix(file, r.file):
			continue
		}
		found = append(found, r)
	}
	if len(v.files) < maxFiles {
		v.files[file] = found
	}
	return found
}

// holdsFor reports whether funcs, a list with spaces between, has name.
func (r *rule) holdsFor(name string) bool {
	if r.funcs == "" {
		return true
	}
	for rest := r.funcs; rest != ""; {
		var f string
		f, rest, _ = strings.Cut(rest, " ")
		if f == name {
			return true
		}
	}
	return false
}

// look returns the meaning of a thread's frames, leaf first.
func (v *viewer) look(frames []pystack.Frame) view {
	var out view
	if len(frames) == 0 {
		return out
	}
	out.known = true
	fetchAt := -1 // the frame of torch's fetcher; the dataset's code is below it
	word := partUnknown
	library := dutyUnknown
	loaderAt := -1
	dutyAt := -1 // the innermost frame with a duty
	for i := range frames {
		f := &frames[i]
		name := f.Func
		matched := false
		for _, r := range v.rulesOf(f.File) {
			if !r.holdsFor(name) {
				continue
			}
			matched = true
			if r.duty == dutyTrainer {
				loaderAt = i
			}
			if r.duty != dutyUnknown && dutyAt < 0 {
				dutyAt = i
			}
			if r.part != partUnknown && out.part == partUnknown {
				out.part = r.part
				if r.part == partFetch {
					fetchAt = i
				}
			}
			if r.loader != "" && out.loader == "" {
				out.loader = r.loader // a library inside torch's workers is the better name
			}
			switch {
			case r.duty == dutyUnknown:
			case r.library:
				if library == dutyUnknown {
					library = r.duty
				}
			case out.duty == dutyUnknown:
				out.duty = r.duty
				if r.duty == dutyWorker && out.part == partUnknown && userCode(frames[:i]) {
					// The outer frames that started it do not matter.
					out.part, fetchAt = partFetch, -1
				}
			}
			break
		}
		if !matched && out.part == partUnknown && word == partUnknown {
			word = wordOf(name)
		}
		if out.duty != dutyUnknown && out.part != partUnknown && !(out.duty == dutyTrainer && loaderAt == i) {
			break
		}
	}
	if out.duty == dutyUnknown {
		out.duty = library
	}
	if out.part == partFetch || out.part == partUnknown && out.duty != dutyUnknown {
		switch {
		case fetchAt > 0 && collating(frames[fetchAt-1].Func, frames[fetchAt].Func):
			out.part, out.byLine = collatePart(frames[:fetchAt])
			out.ownCollate = !installed(frames[fetchAt-1].File)
		case word != partUnknown:
			out.part = word
		}
	}
	if out.duty == dutyUnknown && out.part != partImport {
		out.collective = collectiveOf(frames)
		out.saves = saves(frames)
		if out.steps = out.saves || steps(frames); out.steps {
			out.part = partStep // whatever it calls
			out.learns = learns(frames)
		} else if out.part == partUnknown {
			out.part = ownPart(frames)
		}
	}
	out.rests, out.aside = out.asideOf(frames, dutyAt)
	leaf := frames[0]
	out.leaf = place{leaf.File, leaf.Line}
	if out.duty == dutyTrainer && loaderAt >= 0 && loaderAt+1 < len(frames) {
		out.asks = askedBy(frames[loaderAt+1:])
	}
	out.where, out.user = whereOf(frames, dutyAt)
	return out
}

// userCode reports whether frames have a function of the user's own.
func userCode(frames []pystack.Frame) bool {
	for i := range frames {
		if !installed(frames[i].File) {
			return true
		}
	}
	return false
}

// collating reports whether callee, called by torch's fetcher in caller, is a
// collate function: a dataset is asked by its special methods, from within a
// comprehension before Python 3.12.
func collating(callee, caller string) bool {
	if caller != "fetch" {
		return false
	}
	switch callee {
	case "__getitem__", "__getitems__", "__next__", "__iter__", "<listcomp>":
		return false
	}
	return !strings.HasPrefix(callee, "_iter")
}

// batching are words in the names of functions that put examples together, and collateTexts parts of lines that do so.
var (
	batching     = []string{"collate", "pad", "stack", "batch", "concat", "merge", "to_tensor"}
	collateTexts = []string{"tensor(", "stack(", "cat(", "concat", "pad", "from_numpy(", "array(", "zeros(", "empty(", "full(", "collate", "batch_encode", "zip("}
)

// collatePart returns the work of a user's collate function, from the frames between the leaf and it. It may put the
// examples together, or first compute them, for example tokenise. own reports that the function's own running line must
// decide.
func collatePart(frames []pystack.Frame) (p part, own bool) {
	top := &frames[len(frames)-1]
	if installed(top.File) {
		return partCollate, false
	}
	puts := containsAny(strings.ToLower(top.Func), []string{"pad", "stack", "concat", "merge"})
	// Called functions: the user's own, then those of libraries.
	for i := range frames[:len(frames)-1] {
		f := &frames[i]
		name := strings.ToLower(f.Func)
		switch {
		case strings.HasPrefix(name, "<"):
			continue // a part of the function around it
		case installed(f.File):
			if lib := libraryOf(f.File); lib == "torch" || lib == "numpy" || lib == "multiprocessing" {
				return partCollate, false
			}
			continue
		}
		if word := wordOf(name); word != partUnknown {
			return word, false
		}
		if puts || containsAny(name, batching) {
			return partCollate, false
		}
		return partTransform, false
	}
	switch {
	case puts:
		return partCollate, false
	case installed(frames[0].File):
		return partTransform, false // a library without knowledge of batches
	}
	return partCollate, true
}

// toldByLine decides the work of the user's own collate function by the running line: putting examples together, or
// processing them.
func (v view) toldByLine(line string) view {
	if v.byLine && strings.TrimSpace(line) != "" && !containsAny(line, collateTexts) {
		v.part = partTransform
	}
	return v
}

// collates counts samples of the user's own collate functions.
type collates struct{ computes, puts int }

// judge counts a collate function that mostly computes as computing: building the batch is then a part of the same
// work.
func (c *collates) judge(v view) view {
	if v.part != partCollate {
		c.computes++
		return v
	}
	if c.puts++; c.computes > c.puts {
		v.part = partTransform
	}
	return v
}

func wordOf(name string) part {
	if strings.HasPrefix(name, "<") {
		return partUnknown
	}
	lower := strings.ToLower(name)
	for _, w := range words {
		if strings.Contains(lower, w.in) {
			return w.part
		}
	}
	return partUnknown
}

// plumbing are files of Python that move data between threads and processes. A thread in them does not work, but waits
// for data or passes it on.
var plumbing = []string{"/multiprocessing/", "/selectors.py", "/threading.py", "/queue.py", "/socket.py", "/ssl.py", "/concurrent/futures/", "/asyncio/", "/subprocess.py"}

// whereOf names the function that is at work. It is the innermost function of the user that a loader calls (its frame
// is at dutyAt, -1 for none). Otherwise it is the innermost function that is more than plumbing. If a library works for
// it, the library is also named.
func whereOf(frames []pystack.Frame, dutyAt int) (where string, user bool) {
	end := len(frames)
	if dutyAt > 0 {
		end = dutyAt
	}
	at := -1
	for i := range frames[:end] {
		if !installed(frames[i].File) {
			at, user = i, true
			break
		}
	}
	for i := 0; i < end && at < 0; i++ {
		if !containsAny(frames[i].File, plumbing) {
			at = i
		}
	}
	at = max(at, 0)
	f := &frames[at]
	where = f.Qual + " (" + f.File[strings.LastIndexByte(f.File, '/')+1:] + ")"
	if lib := libraryOf(frames[0].File); user && at > 0 && lib != "" {
		where += " through " + lib
	}
	return where, user
}

// libraryOf names the package or the module of Python that a file belongs to.
func libraryOf(file string) string {
	for _, folder := range []string{"/site-packages/", "/dist-packages/"} {
		if i := strings.LastIndex(file, folder); i >= 0 {
			name, _, _ := strings.Cut(file[i+len(folder):], "/")
			return strings.TrimSuffix(name, ".py")
		}
	}
	i := strings.LastIndex(file, "/lib/python3")
	if i < 0 {
		return ""
	}
	_, rest, _ := strings.Cut(file[i+len("/lib/python3"):], "/")
	name, _, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(name, ".py")
}
