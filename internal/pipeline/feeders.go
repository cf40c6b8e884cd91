package pipeline

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Hashes name the data and the pipeline of a batch. Engines with the same hashes and the same seed build the same
// batches from the same rows.
type Hashes struct {
	// Manifest identifies the records, Pipeline everything else that changes the bytes of a batch.
	Manifest string `json:"manifest"`
	Pipeline string `json:"pipeline"`
}

// Hashes returns the names under which batches of p are requested from other engines. Settings of the machine, such as
// threads, memory and caches, are not part of them.
func (p *Pipeline) Hashes() Hashes {
	type array struct {
		Name, DType, Kind string
		Shape             []int
		Ragged, Padded    bool
	}
	arrays := make([]array, len(p.arrays.layout.Arrays))
	for i, a := range p.arrays.layout.Arrays {
		arrays[i] = array{a.Name, a.DType.String(), a.Kind, a.Shape, a.Ragged, a.Padded}
	}
	id := p.info.Identity
	parts := []any{id.Order, id.Pipeline, p.cfg.BatchSize, id.Ranks, p.cfg.OnError, arrays}
	if p.order.mix != nil { // weights that were changed by hand, of which Identity has nothing
		parts = append(parts, p.cfg.Mix.Changes)
	}
	h := xxh3.HashString128(text(parts)).Bytes()
	return Hashes{Manifest: id.Manifest, Pipeline: hex.EncodeToString(h[:])}
}

// Feeders are servers that build batches for this engine (stoker serve --flight).
type Feeders struct {
	// Servers is the list of servers, or where to find it: "host:port,host:port", "dns:host:port", "file:PATH" or
	// "slurm:port".
	Servers string `json:"servers"`
	// CA, Cert and Key are files for TLS, Token is the file of a token.
	CA    string `json:"ca"`
	Cert  string `json:"cert"`
	Key   string `json:"key"`
	Token string `json:"token"`
	// Insecure permits connections to other machines without TLS.
	Insecure bool `json:"insecure"`
}

// openRemote connects to the servers of the configuration.
func (p *Pipeline) openRemote() error {
	c := &p.cfg
	if c.Feeders == nil {
		return nil
	}
	if p.src.Info().Sequential {
		return fmt.Errorf("%s can only be read in order, since it is compressed, and feeders read any batch: make a pack of it (stoker pack)", p.info.URL)
	}
	if c.OpenRemote == nil {
		return fmt.Errorf("feeders is set, and this program has no client for them")
	}
	remote, err := c.OpenRemote(c.Feeders, p)
	if err != nil {
		return fmt.Errorf("feeders: %w", err)
	}
	p.feeders = remote
	return nil
}
