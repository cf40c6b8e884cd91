package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// This file writes information for other tools into the metadata of the shards' schema.

// maxFeatureBytes limits the description of features. Class names may be many, and the manifest always has them.
const maxFeatureBytes = 256 << 10

// feature is a feature of Hugging Face datasets, as its own files describe it.
type feature struct {
	Names   []string `json:"names,omitempty"`
	Feature *feature `json:"feature,omitempty"`
	Type    string   `json:"_type"`
}

// schemaMeta returns the metadata of every shard's schema. The version identifies a shard without its manifest. The
// rest is information that Hugging Face datasets cannot derive from the columns. kept reports whether a field of
// pictures has only files.
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
