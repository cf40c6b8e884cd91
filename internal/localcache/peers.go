package localcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/peer"
	"github.com/stokerdata/stoker/store"
)

// The environment variables for the secret that the nodes share and for the address of this node.
const (
	TokenVariable = "STOKER_PEERS_TOKEN"
	SelfVariable  = "STOKER_PEERS_SELF"
)

// PeerOptions returns the options of the nodes, nil without nodes. Wrong options are an error, since the nodes would
// disagree.
func PeerOptions(nodes []string, self string) (*peer.Options, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	o := &peer.Options{Nodes: nodes, Self: self, Token: os.Getenv(TokenVariable)}
	if o.Token == "" {
		return nil, fmt.Errorf("peers: %s is not set: all nodes have the same secret there", TokenVariable)
	}
	if o.Self == "" {
		o.Self = os.Getenv(SelfVariable)
	}
	if o.Self == "" {
		var err error
		if o.Self, err = ourselves(nodes); err != nil {
			return nil, err
		}
	}
	return o, o.Check()
}

// ourselves is the one of some nodes that has an address of this machine.
func ourselves(nodes []string) (string, error) {
	own := map[string]bool{}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("peers: finding the addresses of this machine: %w; set peers_self", err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			own[n.IP.String()] = true
		}
	}
	self := ""
	for _, n := range nodes {
		host, _, err := net.SplitHostPort(n)
		if err != nil {
			return "", fmt.Errorf("peers: %q is not an address, host:port", n)
		}
		ips, _ := net.LookupHost(host) // of another node it may be unknown here
		for _, ip := range ips {
			if own[ip] && self != "" && self != n {
				return "", fmt.Errorf("peers: %s and %s are both on this machine; say which one this is with peers_self or %s", self, n, SelfVariable)
			}
			if own[ip] {
				self = n
			}
		}
	}
	if self == "" {
		return "", fmt.Errorf("peers: none of them is on this machine; say which one it is with peers_self or %s", SelfVariable)
	}
	return self, nil
}

// served is the part of a Cache that serves other nodes.
type served struct {
	*peer.Peers
	server  *peer.Server
	objects *recordread.Objects
	object  map[disk.Key]int64
}

// serve starts to serve cached chunks to other nodes. decorate wraps the stores below the cache. One engine per node
// serves: the others find the address in use.
func (c *Cache) serve(opt *peer.Options, decorate func(store.Store) store.Store) error {
	s := c.peers
	s.object = map[disk.Key]int64{}
	if err := c.Keys(func(object, _, _ int64, k disk.Key) error {
		s.object[k] = object
		return nil
	}); err != nil {
		return err
	}
	s.objects = recordread.NewObjects(c.src, nil)
	s.objects.Decorate = func(st store.Store) store.Store {
		if decorate != nil {
			st = decorate(st)
		}
		return c.Disk.Alone(st)
	}
	var err error
	s.server, err = peer.Serve(opt.Self, opt.Token, c.find)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil
	}
	return err
}

// find returns a chunk for another node. A missing chunk is read from the store if there is space for it. So each chunk
// is read once, by the node that caches it.
func (c *Cache) find(ctx context.Context, name string) (peer.Chunk, bool) {
	k, ok := disk.ParseKey(name)
	if !ok {
		return nil, false
	}
	object, ok := c.peers.object[k]
	if !ok || k.Size == 0 {
		return nil, false
	}
	chunk := &sharedChunk{c.peers.objects, object, k}
	if !c.Chunks.Has(k) {
		if chunk.ReadAt(ctx, make([]byte, 1), 0) != nil || !c.Chunks.Has(k) {
			return nil, false
		}
	}
	return chunk, true
}

// sharedChunk is a chunk that another node reads.
type sharedChunk struct {
	objects *recordread.Objects
	object  int64
	k       disk.Key
}

// Size implements peer.Chunk.
func (s *sharedChunk) Size() int64 { return s.k.Size }

// ReadAt implements peer.Chunk.
func (s *sharedChunk) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.objects.Read(ctx, s.object, p, s.k.Off+off)
}

// close stops giving.
func (s *served) close() error {
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	if s.objects != nil {
		if cerr := s.objects.Close(); err == nil {
			err = cerr
		}
	}
	s.Peers.Close()
	return err
}

// stats are the counters.
func (s *served) stats() *peer.Stats {
	st := s.Peers.Stats()
	if s.server != nil {
		st.Served, st.ServedBytes = s.server.Served()
	}
	return &st
}
