package pipeline

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/localcache"
)

// nodeAddresses returns addresses of this machine, one per node.
func nodeAddresses(t *testing.T, n int) (nodes []string) {
	t.Helper()
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 10+i))
		if err != nil {
			t.Skipf("this machine has no address 127.0.0.%d: %v", 10+i, err)
		}
		nodes = append(nodes, l.Addr().String())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// Nodes with separate caches together read each chunk from the store once, and read each other's parts from each other.
// When one exits, the others continue.
func TestPeers(t *testing.T) {
	t.Setenv(localcache.TokenVariable, "a secret of all nodes")
	all, chunks := chunkBytesOf(t)
	nodes := nodeAddresses(t, 3)
	var engines []*Pipeline
	var read []*calls
	for _, self := range nodes {
		cfg := Config{BatchSize: 60, Window: 16, Peers: nodes, PeersSelf: self}
		p, c := cacheDir(t, t.TempDir(), 1<<30, cfg)
		if p.Info().CacheNote != "" {
			t.Fatal(p.Info().CacheNote)
		}
		engines, read = append(engines, p), append(read, c)
	}
	var wg sync.WaitGroup
	for i, p := range engines {
		p.Start(item.Position{Row: int64(i) * 600})
		wg.Go(func() { goThrough(t, p, 1) })
	}
	wg.Wait()
	got, kept, hits, served := int64(0), int64(0), int64(0), int64(0)
	for i, p := range engines {
		got += read[i].readBytes()
		st := p.Stats().CacheDisk
		kept += st.Chunks
		hits += st.Peers.HitBytes
		if st.Chunks > int64(chunks)*6/10 {
			t.Errorf("node %d keeps %d of %d chunks", i, st.Chunks, chunks)
		}
	}
	for _, p := range engines { // they read ahead meanwhile, so the served bytes are read last
		served += p.Stats().CacheDisk.Peers.ServedBytes
	}
	// If a node is overloaded, others read from the store, so that no node waits.
	if float64(got) > 1.3*float64(all) || kept > int64(chunks) || hits == 0 || served < hits {
		t.Errorf("%d bytes were read of the store, there are %d; %d chunks of %d are kept; %d bytes came from nodes, %d were given", got, all, kept, chunks, hits, served)
	}
	if err := engines[2].Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range engines[:2] {
		goThrough(t, p, 1)
	}
}

// Wrong peer options are reported before anything starts.
func TestPeersAreChecked(t *testing.T) {
	open := func(cfg Config) string {
		t.Helper()
		cfg = remoteConfig(t, cfg)
		cfg.BatchSize, cfg.CacheDir, cfg.Memory = 10, t.TempDir(), 192<<20
		p, err := Open(t.Context(), cfg)
		if err == nil {
			_ = p.Close()
			t.Fatal("it is opened")
		}
		return err.Error()
	}
	nodes := []string{"127.0.0.10:7", "127.0.0.11:7"}
	for want, cfg := range map[string]Config{
		"set a cache folder":      {Peers: nodes},
		"STOKER_PEERS_TOKEN":      {Peers: nodes, Cache: CacheOn},
		"is not listed":           {Peers: nodes, PeersSelf: "x:1", Cache: CacheOn},
		"invalid address":         {Peers: []string{"x"}, PeersSelf: "x", Cache: CacheOn},
		"is listed twice":         {Peers: []string{"x:1", "x:1"}, PeersSelf: "x:1", Cache: CacheOn},
		"none of them is on this": {Peers: []string{"203.0.113.1:7"}, Cache: CacheOn},
	} {
		t.Setenv(localcache.TokenVariable, "a secret of all nodes")
		if want == "STOKER_PEERS_TOKEN" {
			t.Setenv(localcache.TokenVariable, "")
		}
		if got := open(cfg); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
