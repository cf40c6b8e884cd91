package feedclient

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// names is a DNS server with the addresses of one name.
type names struct {
	conn net.PacketConn
	name string
	mu   sync.Mutex
	ips  [][4]byte
}

func serveNames(t *testing.T, name string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, name: name}
	var wg sync.WaitGroup
	wg.Go(n.answer)
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return n
}

// set makes 127.0.0.x the addresses of the name.
func (n *names) set(last ...byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ips = nil
	for _, b := range last {
		n.ips = append(n.ips, [4]byte{127, 0, 0, b})
	}
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *names) answer() {
	buf := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		n.mu.Lock()
		if ips := n.ips; q.Name.String() != n.name+"." || len(ips) == 0 {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			for _, ip := range ips {
				head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 30}
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: ip}})
			}
		}
		n.mu.Unlock()
		if out, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(out, from) // a lost answer is asked for again
		}
	}
}

// twins starts servers on 127.0.0.1 and 127.0.0.2 with the same port.
func twins(t *testing.T) (port string, kill [2]func()) {
	t.Helper()
	var l [2]net.Listener
	for {
		var err error
		if l[0], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(l[0].Addr().String())
		if l[1], err = net.Listen("tcp", "127.0.0.2:"+port); err == nil {
			break
		}
		l[0].Close() // another program has the second port
	}
	for i := range l {
		s, err := feedserver.New(feedserver.Of(open(t, feedserver.Config(config()))), feedserver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		kill[i] = serveAt(t, s, l[i])
	}
	return port, kill
}

func addresses(c *Client) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, s := range c.servers {
		host, _, _ := net.SplitHostPort(s.addr)
		list = append(list, host)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// The addresses of a name are the servers. They may come later, and change.
func TestDNS(t *testing.T) {
	p := open(t, config())
	port, _ := twins(t)
	dns := serveNames(t, "feeders.jobs.svc.cluster.local")
	var mu sync.Mutex
	var said []string
	c := client(t, p, Options{
		Feeders: &pipeline.Feeders{Servers: "dns:" + dns.name + ":" + port}, Resolver: dns.resolver(), Reread: 10 * time.Millisecond,
		Say: func(text string) {
			mu.Lock()
			said = append(said, text)
			mu.Unlock()
		},
	})
	list := asks(p, 0, false)
	if err := get(t, c, &list[0]); err == nil {
		t.Error("a batch came of a name without addresses")
	}
	mu.Lock()
	if len(said) == 0 || !strings.Contains(said[0], "has no servers yet") {
		t.Errorf("messages are %q", said)
	}
	mu.Unlock()
	for _, last := range [][]byte{{1}, {1, 2}, {2}} {
		dns.set(last...)
		var hosts []string
		for _, b := range last {
			hosts = append(hosts, fmt.Sprintf("127.0.0.%d", b))
		}
		until(t, "the name was not looked up again", func() bool { return addresses(c) == strings.Join(hosts, " ") })
		for i := range 4 {
			if err := get(t, c, &list[i]); err != nil {
				t.Error(err)
			}
		}
	}
	dns.set() // the last list stays
	for i := range 4 {
		if err := get(t, c, &list[i]); err != nil {
			t.Error(err)
		}
	}
}

// A server in the list that has a name may come back at another address, as the pods of Kubernetes do.
func TestMovedServer(t *testing.T) {
	p := open(t, config())
	port, kill := twins(t)
	dns := serveNames(t, "feeder-0.feeders.jobs.svc.cluster.local")
	dns.set(1)
	c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: dns.name + ":" + port, Insecure: true}, Resolver: dns.resolver()})
	list := asks(p, 0, false)
	if err := get(t, c, &list[0]); err != nil {
		t.Fatal(err)
	}
	kill[0]()
	dns.set(2)
	until(t, "the server was not found again", func() bool { return get(t, c, &list[1]) == nil })
}

// Servers are on the nodes of a job of Slurm.
func TestSlurm(t *testing.T) {
	p := open(t, config())
	port, kill := twins(t)
	t.Setenv("SLURM_JOB_NODELIST", "127.0.0.[1-2]")
	c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: "slurm:" + port}})
	if got := addresses(c); got != "127.0.0.1 127.0.0.2" {
		t.Fatalf("servers are %s", got)
	}
	kill[0]()
	list := asks(p, 0, false)
	for i := range list {
		if err := get(t, c, &list[i]); err != nil {
			t.Error(err)
		}
	}
}
