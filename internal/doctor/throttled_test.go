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

	"github.com/stokerdata/stoker/internal/faulthttp"
)

// fetchingSource stands at the path of PyTorch's loader and asks a server for each example.
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

// TestThrottledStore watches a job whose loader asks a server that answers 10 ms late and
// sends 100 MB/s at most. How long that takes says only how busy the machine is; a step is a
// fourth of it at most.
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
	server := httptest.NewServer(&faulthttp.Throttle{
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
		Inspect: func(path string) (Data, error) { return Data{}, fmt.Errorf("%s is no data", path) },
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

// What a job's command says of data elsewhere, without what is nobody's business.
func TestFarData(t *testing.T) {
	for want, command := range map[string][]string{
		"":                         {"python", "train.py", "--data", "/data/photos", "s3:", "s3://", "ftp://host/x", "https://user:word@host/data"},
		"s3://bucket/train":        {"python", "train.py", "--data=s3://bucket/train?endpoint=http://x#where=y"},
		"https://host/data/x.pack": {"torchrun", "t.py", "--lr", "1", "https://host/data/x.pack?sig=abc"},
		"gs://b/a":                 {"gs://b/a", "s3://b/c"},
	} {
		if got := (&collector{memberState: memberState{command: command}}).farData(); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
