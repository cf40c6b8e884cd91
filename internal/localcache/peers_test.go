package localcache

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/peer"
)

const secret = "a secret of all nodes"

// addresses returns some addresses of this machine, one per node.
func addresses(t *testing.T, n int) (nodes []string) {
	t.Helper()
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 20+i))
		if err != nil {
			t.Skipf("this machine has no address 127.0.0.%d: %v", 20+i, err)
		}
		nodes = append(nodes, l.Addr().String())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func peersOf(nodes []string, self string) *peer.Options {
	return &peer.Options{Nodes: nodes, Self: self, Token: secret}
}

// The node's own position follows from its addresses if possible.
func TestPeerOptions(t *testing.T) {
	for _, c := range []struct {
		nodes                []string
		self, variable, want string
		token                string
		err                  string
	}{
		{nil, "", "", "", "", ""},
		{[]string{"127.0.0.1:7", "203.0.113.1:7"}, "", "", "127.0.0.1:7", secret, ""},
		{[]string{"127.0.0.1:7", "203.0.113.1:7"}, "203.0.113.1:7", "", "203.0.113.1:7", secret, ""},
		{[]string{"127.0.0.1:7", "203.0.113.1:7"}, "", "203.0.113.1:7", "203.0.113.1:7", secret, ""},
		{[]string{"127.0.0.1:7", "203.0.113.1:7"}, "127.0.0.1:7", "203.0.113.1:7", "127.0.0.1:7", secret, ""},
		{[]string{"127.0.0.1:7", "127.0.0.1:8"}, "", "", "", secret, "both on this machine"},
		{[]string{"203.0.113.1:7", "203.0.113.2:7"}, "", "", "", secret, "none of them is on this machine"},
		{[]string{"127.0.0.1:7"}, "x:1", "", "", secret, "is not listed"},
		{[]string{"127.0.0.1"}, "", "", "", secret, "not an address"},
		{[]string{"127.0.0.1:7"}, "", "", "", "", TokenVariable},
		{[]string{"127.0.0.1:7"}, "", "", "", "short", "16"},
	} {
		t.Setenv(TokenVariable, c.token)
		t.Setenv(SelfVariable, c.variable)
		o, err := PeerOptions(c.nodes, c.self)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), secret)):
			t.Errorf("%v: %v, want %q", c.nodes, err, c.err)
		case c.err == "" && (err != nil || (o == nil) != (c.nodes == nil) || o != nil && o.Self != c.want):
			t.Errorf("%v: %+v, %v", c.nodes, o, err)
		}
	}
}

// Two nodes together read each chunk from the store once, and serve the rest to each other.
func TestNodes(t *testing.T) {
	nodes := addresses(t, 2)
	var read, served, hits, failed int64
	var caches []*Cache
	for _, self := range nodes {
		d, _ := far(t, 0)
		caches = append(caches, open(t, d, Options{Dir: t.TempDir(), Limit: 1 << 30, Peers: peersOf(nodes, self)}))
	}
	for i, c := range caches {
		if err := readAll(t.Context(), c.src, c.Store, 0); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	for _, c := range caches {
		s := c.Stats()
		if s.Chunks == 0 || s.Chunks == objects*chunksOf {
			t.Errorf("%+v, %+v", s, s.Peers)
		}
		failed += s.Peers.Failed
		read += s.KeptBytes
		served += s.Peers.ServedBytes
		hits += s.Peers.HitBytes
	}
	// On a busy machine a node may seem to be gone. The other node then does its part.
	if failed == 0 && (read != objects*objectBytes || served != hits) || hits == 0 {
		t.Errorf("%d bytes were kept, %d came from nodes, which gave %d", read, hits, served)
	}
}

// A node that is asked for a chunk that it does not have, or cannot have, reports that and reads nothing. A chunk that
// it owns is read from the store on the first request.
func TestFind(t *testing.T) {
	nodes := addresses(t, 2)
	d, st := far(t, 0)
	c := open(t, d, Options{Dir: t.TempDir(), Limit: 1 << 30, Peers: peersOf(nodes, nodes[0])})
	k := disk.KeyOf("memory:o1", d.entries[1].Version, chunkBytes, chunkBytes)
	other := k
	other.Version[0]++
	short := k
	short.Size--
	for _, name := range []string{
		"", "x", "../../etc/passwd", k.String() + "0", strings.ToUpper(k.String()), other.String(), short.String(),
		disk.KeyOf("memory:o9", d.entries[1].Version, chunkBytes, chunkBytes).String(), disk.KeyOf("memory:o1", "7", chunkBytes, chunkBytes).String(),
	} {
		if _, ok := c.find(t.Context(), name); ok {
			t.Errorf("%q is there", name)
		}
	}
	if n := st.Stats().Bytes; n != 0 {
		t.Errorf("%d bytes were read", n)
	}
	chunk, ok := c.find(t.Context(), k.String())
	if !ok || chunk.Size() != chunkBytes || st.Stats().Bytes != chunkBytes || !c.Chunks.Has(k) {
		t.Fatalf("%v, %d", ok, st.Stats().Bytes)
	}
	b := make([]byte, 100)
	if err := chunk.ReadAt(t.Context(), b, 7); err != nil || !bytes.Equal(b, bytesOf(1, 0)[chunkBytes+7:chunkBytes+107]) || st.Stats().Bytes != chunkBytes {
		t.Errorf("%v, %d", err, st.Stats().Bytes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Off += chunkBytes
	if _, ok := c.find(ctx, disk.KeyOf("memory:o1", d.entries[1].Version, 2*chunkBytes, chunkBytes).String()); ok {
		t.Error("it is read for nobody")
	}
	// Without cache space there is nothing to serve, and no node waits for it.
	full := open(t, d, Options{Dir: t.TempDir(), Limit: 1, Peers: peersOf([]string{nodes[1]}, nodes[1])})
	if _, ok := full.find(t.Context(), k.String()); ok {
		t.Error("there is room for nothing")
	}
}

// Even if the other node sends wrong bytes, the bytes read are those of the store.
func TestNodeLies(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"other bytes": func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 50_000)) },
		"fewer":       func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("x")) },
		"without end": func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
		"never has it":  http.NotFound,
		"too much":      func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"not a node":    func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"another token": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"ends at once":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(w, r)
			}))
			server.Start()
			defer server.Close()
			nodes := []string{addresses(t, 1)[0], server.Listener.Addr().String()}
			d, st := far(t, 0)
			c := open(t, d, Options{Dir: t.TempDir(), Limit: 1 << 30, Peers: peersOf(nodes, nodes[0])})
			if err := readAll(t.Context(), d, c.Store, 0); err != nil {
				t.Error(err)
			}
			if s := c.Stats(); asked.Load() == 0 || s.Peers.Hits != 0 || st.Stats().Bytes < objects*objectBytes {
				t.Errorf("asked %d times, %d bytes of the store, %+v", asked.Load(), st.Stats().Bytes, s.Peers)
			}
			closed(t, c)
		})
	}
}

// A node with another version of the data has no chunks to serve.
func TestNodeOfAnotherVersion(t *testing.T) {
	nodes := addresses(t, 2)
	mine, _ := far(t, 0)
	theirs, _ := far(t, 1)
	a := open(t, mine, Options{Dir: t.TempDir(), Limit: 1 << 30, Peers: peersOf(nodes, nodes[0])})
	b := open(t, theirs, Options{Dir: t.TempDir(), Limit: 1 << 30, Peers: peersOf(nodes, nodes[1])})
	for version, c := range map[byte]*Cache{0: a, 1: b} {
		if err := readAll(t.Context(), c.src, c.Store, version); err != nil {
			t.Error(err)
		}
		if s := c.Stats(); s.Peers.Hits != 0 {
			t.Errorf("%+v", s.Peers)
		}
	}
}

// nodeVariable has this program be a node: NODES SELF, as node reads them.
const nodeVariable = "STOKER_TEST_NODE"

// nodeSays is the report of a node in a line of JSON.
type nodeSays struct {
	Err                          string
	Read, Kept, Hit, Served, All int64
	Failed                       int64
}

// node is a process that reads all data through its cache on each command.
func node(what string) {
	self, list, _ := strings.Cut(what, " ")
	fail := func(err error) {
		_ = json.NewEncoder(os.Stdout).Encode(nodeSays{Err: err.Error()})
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "stoker-node-")
	if err != nil {
		fail(err)
	}
	defer os.RemoveAll(dir)
	d, st := far(new(testing.T), 0)
	opt, err := PeerOptions(strings.Split(list, ","), self)
	if err != nil {
		fail(err)
	}
	c, err := Open(d, Options{Dir: dir, Limit: 1 << 30, Peers: opt, Buffers: 2, Largest: Largest(d), Say: func(string) {}})
	if err != nil {
		fail(err)
	}
	says := func() {
		s := c.Stats()
		_ = json.NewEncoder(os.Stdout).Encode(nodeSays{
			Read: st.Stats().Bytes, Kept: s.Chunks, Hit: s.Peers.HitBytes, Served: s.Peers.ServedBytes, Failed: s.Peers.Failed, All: objects * objectBytes,
		})
	}
	says()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "read" {
			if err := readAll(context.Background(), d, c.Store, 0); err != nil {
				fail(err)
			}
		}
		says()
	}
	if err := c.Close(); err != nil {
		fail(err)
	}
}

// remoteNode is a node in a network namespace of its own.
type remoteNode struct {
	in  io.WriteCloser
	out *json.Decoder
	cmd *exec.Cmd
}

func (n *remoteNode) do(t *testing.T, what string) (s nodeSays) {
	t.Helper()
	if what != "" {
		if _, err := fmt.Fprintln(n.in, what); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.out.Decode(&s); err != nil || s.Err != "" {
		t.Fatalf("%v %s", err, s.Err)
	}
	return s
}

// Two nodes reach each other over a separate network. Each has its own network namespace and addresses. Each chunk is
// read from the store once, and a node finds its position from its address. When the network between them is cut, each
// node continues alone.
func TestNamespaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip (Debian: iproute2)")
	}
	name := fmt.Sprintf("stoker%d", os.Getpid())
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	inside := [2]string{name + "a", name + "b"}
	link := [2]string{fmt.Sprintf("sk%da", os.Getpid()), fmt.Sprintf("sk%db", os.Getpid())}
	address := [2]string{"10.231.78.1", "10.231.78.2"}
	t.Cleanup(func() { // removing a namespace removes its content
		for _, n := range inside {
			_ = ip("netns", "del", n)
		}
		_ = ip("link", "del", link[0])
	})
	for _, n := range inside {
		if err := ip("netns", "add", n); err != nil {
			t.Skipf("this machine lets nobody make network namespaces: %v", err)
		}
	}
	steps := [][]string{{"link", "add", link[0], "type", "veth", "peer", "name", link[1]}}
	for i, n := range inside {
		steps = append(steps, []string{"link", "set", link[i], "netns", n}, []string{"-n", n, "addr", "add", address[i] + "/24", "dev", link[i]},
			[]string{"-n", n, "link", "set", link[i], "up"}, []string{"-n", n, "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if err := ip(s...); err != nil {
			t.Skipf("this machine has no pairs of devices: %v", err)
		}
	}
	nodes := []string{address[0] + ":7070", address[1] + ":7070"}
	var running [2]*remoteNode
	for i, n := range inside {
		cmd := exec.Command("ip", "netns", "exec", n, os.Args[0])
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, SelfVariable) }),
			nodeVariable+"= "+strings.Join(nodes, ","), TokenVariable+"="+secret)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[i] = &remoteNode{in, json.NewDecoder(out), cmd}
		t.Cleanup(func() {
			_ = in.Close()
			late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, n := range running {
		n.do(t, "")
	}
	a := running[0].do(t, "read")
	b := running[1].do(t, "read")
	a = running[0].do(t, "tell")
	if a.Kept == 0 || b.Kept == 0 || a.Hit == 0 || b.Hit == 0 {
		t.Errorf("%+v, %+v", a, b)
	}
	// On a busy machine a node may seem to be gone. The other node then does its part.
	if a.Failed+b.Failed == 0 {
		if a.Read+b.Read != a.All || a.Kept+b.Kept != objects*chunksOf || a.Served != b.Hit || b.Served != a.Hit {
			t.Errorf("%+v, %+v", a, b)
		}
		// Again: nothing more is read from the store.
		if again := running[0].do(t, "read"); again.Failed == 0 && (again.Read != a.Read || again.Hit <= a.Hit) {
			t.Errorf("%+v, before %+v", again, a)
		}
	}
	if err := ip("-n", inside[0], "link", "set", link[0], "down"); err != nil {
		t.Fatal(err)
	}
	alone := running[0].do(t, "read")
	if alone.Failed <= a.Failed || alone.Kept < a.Kept || a.Failed == 0 && alone.Read <= a.Read {
		t.Errorf("%+v, before %+v", alone, a)
	}
	if err := ip("-n", inside[0], "link", "set", link[0], "up"); err != nil {
		t.Fatal(err)
	}
	// Chunks that it cached meanwhile stay, and the other node did not miss anything.
	if b = running[1].do(t, "read"); b.Read+a.Read < a.All {
		t.Errorf("%+v", b)
	}
}
