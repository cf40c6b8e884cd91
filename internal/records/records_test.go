package records

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// client is a connection to a server, as a Python process has it.
type client struct {
	t    *testing.T
	conn *net.UnixConn
	mem  []byte
}

func serve(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(2)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return l
}

func connect(t *testing.T, l *net.UnixListener) *client {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(4))
	if _, _, _, _, err := conn.ReadMsgUnix(head, oob); err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fds[0], 0, 1<<30, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem); unix.Close(fds[0]) })
	return &client{t, conn, mem}
}

func (c *client) ask(r *Request) *Answer {
	c.t.Helper()
	b, _ := json.Marshal(r)
	message := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
	if _, err := c.conn.Write(append(message, b...)); err != nil {
		c.t.Fatal(err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		c.t.Fatal(err)
	}
	out := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(c.conn, out); err != nil {
		c.t.Fatal(err)
	}
	a := &Answer{}
	if err := json.Unmarshal(out, a); err != nil {
		c.t.Fatal(err)
	}
	return a
}

// number returns a number of the entry of a value.
func (c *client) number(value, i int) int64 {
	return int64(binary.LittleEndian.Uint64(c.mem[value*entryBytes+8*i:]))
}

func table(t *testing.T, rows ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("n,text\n"+strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecords(t *testing.T) {
	l := serve(t)
	path := table(t, "5,five", "-7,seven", "9,nine")
	for range 2 { // clients
		c := connect(t, l)
		a := c.ask(&Request{URL: path, Opened: "a"})
		if a.Error != "" || a.Info.Len != 3 || len(a.Info.Fields) != 2 || a.Info.Fields[0].Name != "n" {
			t.Fatalf("%+v", a)
		}
		for _, ids := range [][]int64{{1}, {2, 0, 1, 1}, {}} {
			if len(ids) == 0 {
				continue
			}
			a = c.ask(&Request{URL: path, Opened: "a", Records: ids})
			if a.Error != "" || len(a.Bad) > 0 || len(a.Names) != len(ids) {
				t.Fatalf("%+v", a)
			}
			for k, id := range ids {
				if got, want := c.number(2*k, 2), []int64{5, -7, 9}[id]; got != want {
					t.Errorf("record %d: %d, want %d", id, got, want)
				}
				at, n := c.number(2*k+1, 0), c.number(2*k+1, 1)
				if got, want := string(c.mem[at:at+n]), []string{"five", "seven", "nine"}[id]; got != want {
					t.Errorf("record %d: %q, want %q", id, got, want)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	c := connect(t, serve(t))
	missing := filepath.Join(t.TempDir(), "missing")
	for range 2 { // it is tried again
		if a := c.ask(&Request{URL: missing}); !strings.Contains(a.Error, missing) {
			t.Errorf("%+v", a)
		}
	}
	path := table(t, "1,x")
	a := c.ask(&Request{URL: path, Records: []int64{0, 1, -1}})
	if a.Error == "" && (len(a.Bad) != 2 || !strings.Contains(a.Bad[0].Reason, "out")) {
		t.Errorf("%+v", a)
	}
	if a := c.ask(&Request{URL: path, Sequence: &Sequence{Length: 4}}); !strings.Contains(a.Error, "tokens") {
		t.Errorf("%+v", a)
	}
}

func TestSourcesAreClosed(t *testing.T) {
	c := connect(t, serve(t))
	for range maxOpen + 5 {
		if a := c.ask(&Request{URL: table(t, "1,x"), Records: []int64{0}}); a.Error != "" {
			t.Fatal(a.Error)
		}
	}
}

func TestMemory(t *testing.T) {
	m, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, n := range []int64{0, 1, growBytes, 3*growBytes + 1} {
		b, at, err := m.alloc(n)
		if err != nil || int64(len(b)) != n || at%align != 0 {
			t.Fatal(len(b), at, err)
		}
		for i := range b {
			b[i] = 1
		}
	}
	if _, _, err := m.alloc(maxMemory); err == nil || !strings.Contains(err.Error(), "fewer records") {
		t.Error(err)
	}
	if _, _, err := m.alloc(-1); err == nil {
		t.Error("a negative size is taken")
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := receive(strings.NewReader(string(b))); err == nil && r == nil {
			t.Error("no request and no error")
		}
	})
}

// A source outlives the client that has opened it.
func TestAnotherClientReads(t *testing.T) {
	l := serve(t)
	path := table(t, "5,five", "-7,seven")
	first := connect(t, l)
	if a := first.ask(&Request{URL: path, Records: []int64{0}}); a.Error != "" {
		t.Fatal(a.Error)
	}
	first.conn.Close()
	second := connect(t, l)
	if a := second.ask(&Request{URL: path, Records: []int64{1}}); a.Error != "" || second.number(0, 2) != -7 {
		t.Fatalf("%+v", a)
	}
}
