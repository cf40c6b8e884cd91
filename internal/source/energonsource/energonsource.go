// Package energonsource reads the data sets that Megatron-Energon has prepared: tar files of webdataset, and a folder
// .nv-meta that lists them. Its split.yaml says which tar files belong to which split, and its dataset.yaml names
// fields. The engine does not run the Python code that a data set may have there (sample_loader.py).
package energonsource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/braces"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/internal/source/tarsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	folder   = ".nv-meta/"
	maxBytes = 64 << 20
)

// Names of the files, in the order in which Energon looks for them.
var (
	infoNames  = []string{folder + ".info.json", folder + ".info.yaml"}
	splitNames = []string{folder + "split.yaml", folder + "split.json"}
	dataNames  = []string{folder + "dataset.yaml"}
)

// Is reports whether a folder has been prepared by Energon.
func Is(ctx context.Context, st store.Store) bool {
	return slices.ContainsFunc(infoNames, func(name string) bool { e, err := st.Stat(ctx, name); return err == nil && !e.Dir })
}

// Meta is the content of the folder .nv-meta.
type Meta struct {
	// Shards are the names of all tar files, with the number of their samples.
	Shards map[string]int64
	// Splits are the tar files of each split, without the excluded ones.
	Splits map[string][]string
	// Exclude has samples that belong to no split: SHARD/KEY.
	Exclude map[string]bool
	// Fields are the names of fields, by the suffix of their members.
	Fields map[string]string
}

// Open opens a split of a prepared folder.
func Open(ctx context.Context, url string, st store.Store, opt *format.Options) (driver.Source, error) {
	var o format.Options
	if opt != nil {
		o = *opt
	}
	m, err := read(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", url, err)
	}
	var have []string
	for name, shards := range m.Splits {
		if len(shards) > 0 {
			have = append(have, name)
		}
	}
	splits.Sort(have)
	if len(have) == 0 {
		return nil, fmt.Errorf("cannot open %s: %s has no split with a tar file", url, st.Path(splitNames[0]))
	}
	split, err := splits.Choose(url, have, o.Split)
	if err != nil {
		return nil, err
	}
	s, err := tarsource.Open(ctx, url, st, &archive.Options{Names: m.Splits[split], Fields: m.Fields, Exclude: m.Exclude, Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	s.Info().Format = "energon"
	return s, nil
}

// read reads the folder .nv-meta.
func read(ctx context.Context, st store.Store) (*Meta, error) {
	info, name, err := first(ctx, st, infoNames)
	if err != nil {
		return nil, err
	}
	split, splitName, err := first(ctx, st, splitNames)
	if err != nil {
		return nil, err
	}
	data, dataName, err := first(ctx, st, dataNames)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, err
	}
	m := &Meta{}
	if err := m.info(info); err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(name), err)
	}
	if err := m.splits(split); err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(splitName), err)
	}
	if err := m.fields(data); err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(dataName), err)
	}
	return m, nil
}

// first reads the first of several files that exists.
func first(ctx context.Context, st store.Store, names []string) (b []byte, name string, err error) {
	for _, name := range names {
		b, err := store.ReadFile(ctx, st, name, maxBytes)
		if !errors.Is(err, store.ErrNotExist) {
			return b, name, err
		}
	}
	return nil, names[0], fmt.Errorf("%s is missing: %w", st.Path(names[0]), store.ErrNotExist)
}

// decode parses YAML, of which JSON is a part.
func decode(b []byte, into any) error {
	if json.Valid(b) {
		return json.Unmarshal(b, into)
	}
	if err := yaml.Unmarshal(b, into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return nil
}

func (m *Meta) info(b []byte) error {
	var in struct {
		Counts map[string]int64 `json:"shard_counts" yaml:"shard_counts"`
	}
	if err := decode(b, &in); err != nil {
		return err
	}
	if len(in.Counts) == 0 {
		return errors.New("shard_counts lists no tar file: run energon prepare")
	}
	for name, n := range in.Counts {
		if err := store.CheckName(name); err != nil || n < 0 {
			return fmt.Errorf("shard_counts: %q with %d samples is not a tar file of this folder", name, n)
		}
	}
	m.Shards = in.Counts
	return nil
}

func (m *Meta) splits(b []byte) error {
	var in struct {
		Parts   map[string][]string `json:"split_parts" yaml:"split_parts"`
		Exclude []string            `json:"exclude" yaml:"exclude"`
	}
	if err := decode(b, &in); err != nil {
		return err
	}
	exclude, err := expand(in.Exclude)
	if err != nil {
		return fmt.Errorf("exclude: %w", err)
	}
	without := map[string]bool{}
	for _, name := range exclude {
		without[name] = true
	}
	m.Splits = map[string][]string{}
	for _, split := range slices.Sorted(maps.Keys(in.Parts)) {
		names, err := expand(in.Parts[split])
		if err != nil {
			return fmt.Errorf("split_parts: %s: %w", split, err)
		}
		m.Splits[split] = nil
		for _, name := range names {
			if _, ok := m.Shards[name]; !ok {
				return fmt.Errorf("split_parts: %s: %q is not in shard_counts of %s: run energon prepare again", split, name, path.Base(infoNames[0]))
			}
			if !without[name] {
				m.Splits[split] = append(m.Splits[split], name)
			}
		}
	}
	for name := range without {
		if _, shard := m.Shards[name]; shard {
			delete(without, name)
		}
	}
	m.Exclude = without
	return nil
}

// expand expands the braces of all texts.
func expand(texts []string) (out []string, err error) {
	for _, text := range texts {
		names, err := braces.Expand(text)
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > braces.Most {
			return nil, fmt.Errorf("more than %d names", braces.Most)
		}
	}
	return out, nil
}

// plain matches a field that is all of a member, such as jpg or left.png.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// fields reads the names of fields. A value inside of a member, such as json[caption], has no name of its own: the
// field json has it.
func (m *Meta) fields(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var in struct {
		Map map[string]any `json:"field_map" yaml:"field_map"`
	}
	if err := decode(b, &in); err != nil {
		return err
	}
	m.Fields = map[string]string{}
	for _, field := range slices.Sorted(maps.Keys(in.Map)) {
		text, _ := in.Map[field].(string)
		for _, suffix := range strings.Split(text, ",") { // png,jpg is the first of them that a sample has
			suffix = strings.ToLower(strings.TrimSpace(suffix))
			if plain.MatchString(suffix) {
				m.Fields[suffix] = cmp.Or(m.Fields[suffix], field)
			}
		}
	}
	return nil
}
