package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// This file is about what other tools need to know, in the metadata of the
// shards' schema.

// maxFeatureBytes bounds what is said about features: class names may be many,
// and stand in the manifest in any case.
const maxFeatureBytes = 256 << 10

// feature is a feature of Hugging Face datasets, as its own files describe it.
type feature struct {
	Names   []string `json:"names,omitempty"`
	Feature *feature `json:"feature,omitempty"`
	Type    string   `json:"_type"`
}

// schemaMeta is the metadata of every shard's schema: the version, so that a
// shard that lost its manifest still says what it is, and what Hugging Face
// datasets cannot see from the columns. kept says which fields of pictures hold
// nothing but files.
func schemaMeta(fields []Field, kept func(f *Field) bool) []arrowipc.KeyValue {
	meta := []arrowipc.KeyValue{{Key: "stoker.pack.version", Value: fmt.Sprint(Version)}}
	features := map[string]*feature{}
	for i := range fields {
		f := &fields[i]
		switch {
		case f.picture() && kept(f):
			features[f.Name] = &feature{Type: "Image"}
		case f.Kind == driver.KindAudio:
			features[f.Name] = &feature{Type: "Audio"}
		case f.Kind == driver.KindLabel && len(f.Classes) > 0:
			features[f.Name] = &feature{Type: "ClassLabel", Names: f.Classes}
		case f.Kind == driver.KindMultiLabel && len(f.Classes) > 0:
			features[f.Name] = &feature{Type: "LargeList", Feature: &feature{Type: "ClassLabel", Names: f.Classes}}
		}
	}
	if len(features) == 0 {
		return meta
	}
	b, err := marshalLine(map[string]any{"info": map[string]any{"features": features}})
	if err != nil || len(b) > maxFeatureBytes {
		return meta
	}
	return append(meta, arrowipc.KeyValue{Key: "huggingface", Value: string(b)})
}
