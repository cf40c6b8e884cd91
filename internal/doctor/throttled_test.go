package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
)

// The path of fetchingSource is like PyTorch's loader; it asks a server for each example.
const fetchingSource = `
import http.client, urllib.parse

class Iter:
    def __init__(self, url):
        at = urllib.parse.urlsplit(url)
        self.server, self.path, self.n = http.client.HTTPConnection(at.netloc), at.path, 0
    def __next__(self):
        batch = []
        for _ in range(8):
            self.n += 1
            self.server.request("GET", "%s/%d.jpg" % (self.path, self.n % 16))
            batch.append(self.server.getresponse().read())
        return batch
`

// TestThrottledStore observes a job whose loader asks a server that answers 10 ms late and sends at most 100 MB/s. The
// total time only depends on the load of the machine; a step is at most a fourth of it.
func TestThrottledStore(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	data := t.TempDir()
	for i := range 16 {
		if err := os.WriteFile(filepath.Join(data, fmt.Sprint(i, ".jpg")), bytes.Repeat([]byte{byte(i)}, 110_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(&httpfaulttest.Throttle{
		Handler: http.StripPrefix("/photos", http.FileServer(http.Dir(data))), Latency: 10 * time.Millisecond, BytesPerSecond: 100e6,
	})
	defer server.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"utils/data/dataloader.py": {Data: []byte(fetchingSource)}, "train.py": {Data: []byte(trainSource)},
		"utils/__init__.py": {}, "utils/data/__init__.py": {},
	}); err != nil {
		t.Fatal(err)
	}
	url := server.URL + "/photos"
	job, err := Start([]string{python, filepath.Join(dir, "train.py"), dir, url + "?key=secret"}, nil, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = job.cmd.Process.Kill()
		_ = job.Wait()
	}()
	r, err := Watch(context.Background(), Options{
		PID: job.PID(), Seconds: 3, Patience: 30,
		Inspect: func(path string) (Data, error) { return Data{}, fmt.Errorf("%s is not data", path) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Join(r.Skipped, "\n"), "Python frames") {
		t.Skipf("frames cannot be read here: %q", r.Skipped)
	}
	if r.Verdict != Network && r.Verdict != Storage || r.Gain < actGain {
		t.Fatalf("%s: %+v", r.Line, r)
	}
	want := `stoker.Loader("` + url + `", cache=True)`
	at := slices.IndexFunc(r.Advice, func(a Advice) bool { return strings.Contains(a.Title, "cache") })
	if at < 0 || r.Advice[at].Command != want || r.Advice[at].Gain < actGain {
		t.Errorf("%+v, want %s", r.Advice, want)
	}
}

// The remote data in a job's command, without private parts.
func TestFarData(t *testing.T) {
	for want, command := range map[string][]string{
		"":                         {"python", "train.py", "--data", "/data/photos", "s3:", "s3://", "ftp://host/x", "https://user:word@host/data"},
		"s3://bucket/train":        {"python", "train.py", "--data=s3://bucket/train?endpoint=http://x#where=y"},
		"https://host/data/x.pack": {"torchrun", "t.py", "--lr", "1", "https://host/data/x.pack?sig=abc"},
		"gs://b/a":                 {"gs://b/a", "s3://b/c"},
	} {
		if got := (&collector{memberState: memberState{command: command}}).remoteData(); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

// In a job whose Stoker engine waits for a server, the stages show the share of reading in a batch. The first advice is
// a cache, with the gain of a job that does not wait any more.
func TestEngineOfAThrottledStore(t *testing.T) {
	e := &engineShares{read: 0.9, decode: 0.08, collate: 0.02, network: true}
	s := &shares{samples: 300, step: 0.4, wait: 0.6, cores: 8, tree: 0.5, exact: true, engine: e}
	if n, d, h, w := s.cost(causeNetwork), s.cost(causeCPU), s.cost(causeHandoff), s.cost(causeStorage); n != 0.9 || d != 0.08 || h != 0.02 || w != 0 {
		t.Errorf("reading %v, decoding %v, collating %v; of files %v", n, d, h, w)
	}
	gain := 1 / s.timeWithout(Network)
	if gain < 2.4 || gain > 2.6 { // the step alone is left
		t.Errorf("gain %v", gain)
	}
	for want, command := range map[string][]string{
		`stoker.Loader("s3://bucket/train", cache=True)`: {"python", "train.py", "s3://bucket/train?endpoint=http://host"},
		`stoker.Loader(..., cache=True)`:                 {"python", "train.py"},
	} {
		f := &findings{
			c: &collector{memberState: memberState{command: command}}, s: s, sum: &bin{dt: 10},
			r: &Report{Seconds: 20, Verdict: Network, Gain: gain, Gains: map[Verdict]float64{Network: gain}, Waiting: 0.6, Loader: Loader{Kind: "stoker", Trainers: 1}},
		}
		got := f.advise()
		if len(got) == 0 || got[0].Command != want || !strings.Contains(got[0].Why, "90% of what making a batch takes") || got[0].Gain != round(gain, 2) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	e.network = false // the same of a disk
	if n, w := s.cost(causeNetwork), s.cost(causeStorage); n != 0 || w != 0.9 {
		t.Errorf("reading %v, of files %v", n, w)
	}
}
