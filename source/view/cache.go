package view

import (
	"encoding/binary"

	"github.com/stokerdata/stoker/internal/querycache"
)

func load(opt *Options, key string) ([]byte, bool) {
	if opt.NoCache || key == "" {
		return nil, false
	}
	return querycache.Load(key)
}

func save(opt *Options, key string, answer []byte) {
	if !opt.NoCache {
		_, _ = querycache.Save(key, answer)
	}
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// bytes64 returns numbers in the format of cache files.
func bytes64(all []uint64) []byte {
	b := make([]byte, 0, 8*len(all))
	for _, v := range all {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}
