package httpstore

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/store"
)

// TestThroughProxy is the process that TestProxy starts: a process reads the proxy variables once.
func TestThroughProxy(t *testing.T) {
	url := os.Getenv("STOKER_TEST_PROXIED")
	if url == "" {
		t.Skip("this is for a process of another test")
	}
	s, err := New(url, &Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := store.ReadFile(t.Context(), s, "x", 100)
	fmt.Printf("got %q, %v\n", b, err)
}

// Requests use the proxy of the environment and authenticate to it. Hosts in NO_PROXY are contacted directly. Proxy
// credentials are in no message.
func TestProxy(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answer := http.StatusOK
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
		if answer != http.StatusOK {
			w.WriteHeader(answer)
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader("hello"))
	}))
	defer proxy.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const user, password = "somebody", "PASSWORDOFTHEPROXY"
	at := "http://" + user + ":" + password + "@" + strings.TrimPrefix(proxy.URL, "http://")
	told := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	for _, c := range []struct {
		name, proxy, without string
		answer               int
		asks                 bool
		want                 string
	}{
		{"through it", at, "", http.StatusOK, true, `got "hello", <nil>`},
		{"not for this host", at, "data.invalid", http.StatusOK, false, "unknown host data.invalid"},
		{"refused", at, "", http.StatusProxyAuthRequired, true, "credentials"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mu.Lock()
			asked, answer = nil, c.answer
			mu.Unlock()
			cmd := exec.Command(exe, "-test.run=^TestThroughProxy$")
			cmd.Env = append(os.Environ(), "STOKER_TEST_PROXIED=http://data.invalid/folder", "HTTP_PROXY="+c.proxy, "http_proxy="+c.proxy, "NO_PROXY="+c.without, "no_proxy="+c.without)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !strings.Contains(string(out), c.want) || strings.Contains(string(out), password) {
				t.Errorf("%s", out)
			}
			mu.Lock()
			defer mu.Unlock()
			if c.asks != (len(asked) > 0) {
				t.Errorf("the proxy was asked for %q", asked)
			}
			for _, a := range asked {
				if a != "http://data.invalid/folder/x "+told {
					t.Errorf("the proxy was asked for %q", a)
				}
			}
		})
	}
}
