package lerobotsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/jsonread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// InfoName is the file that describes a data set.
const InfoName = "meta/info.json"

const (
	// maxJSON is the size limit of a JSON file.
	maxJSON = 64 << 20
	// maxEpisodes limits the number of episodes.
	maxEpisodes = 10 << 20
)

// Is reports whether a folder is a data set of LeRobot.
func Is(ctx context.Context, st store.Store) bool {
	b := filelist.Head(ctx, st, InfoName, 1<<20)
	return bytes.Contains(b, []byte(`"codebase_version"`)) && bytes.Contains(b, []byte(`"features"`))
}

// about is the content of meta/info.json.
type about struct {
	Version  string          `json:"codebase_version"`
	FPS      float64         `json:"fps"`
	Data     string          `json:"data_path"`
	Video    string          `json:"video_path"`
	Chunks   int64           `json:"chunks_size"`
	Features json.RawMessage `json:"features"`

	features []feature
}

// feature describes a part of each record. Features keep the order of the file.
type feature struct {
	name  string
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

func readAbout(ctx context.Context, st store.Store) (*about, error) {
	a := &about{Chunks: 1000}
	err := jsonread.File(ctx, st, InfoName, maxJSON, a, "LeRobot metadata")
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s", st.Path(InfoName), fmt.Sprintf(format, args...))
	}
	switch {
	case !strings.HasPrefix(a.Version, "v3.") && !strings.HasPrefix(a.Version, "v2."):
		return nil, bad("unsupported version %.20q (supported: v2, v3)", a.Version)
	case !(a.FPS > 0 && a.FPS <= 1e6):
		return nil, bad("invalid frame rate %v", a.FPS)
	case a.Chunks < 1:
		return nil, bad("invalid chunks_size %d", a.Chunks)
	case a.Data == "":
		return nil, bad("data_path is missing")
	}
	if a.features, err = parseFeatures(a.Features); err != nil {
		return nil, bad("features: %v", err)
	}
	return a, nil
}

// v2 reports whether each episode is its own file, as in version 2.
func (a *about) v2() bool { return strings.HasPrefix(a.Version, "v2.") }

// parseFeatures parses the members of an object in order.
func parseFeatures(b []byte) (all []feature, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected an object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		var f feature
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("%.100q: %w", t, err)
		}
		f.name, _ = t.(string)
		if f.name == "" || slices.ContainsFunc(all, func(o feature) bool { return o.name == f.name }) {
			return nil, fmt.Errorf("invalid or repeated name %.100q", t)
		}
		if f.DType != "video" && f.DType != "image" && f.DType != "string" {
			if _, err := driver.ArrayBytes(driver.DType(f.DType), f.Shape); err != nil {
				return nil, fmt.Errorf("%.100q: %w", f.name, err)
			}
		}
		if all = append(all, f); len(all) > 4096 {
			return nil, errors.New("more than 4,096")
		}
	}
	return all, nil
}

// numbers are the values for the placeholders of a path template.
type numbers struct {
	chunk, file, episode int64
	video                string
}

// expand expands a template such as videos/{video_key}/chunk-{chunk_index:03d}.mp4.
func (n *numbers) expand(template string) (string, error) {
	var out strings.Builder
	rest := template
	for {
		before, after, ok := strings.Cut(rest, "{")
		out.WriteString(before)
		if !ok {
			break
		}
		inner, behind, ok := strings.Cut(after, "}")
		if !ok {
			return "", fmt.Errorf("the path %.200q has an unclosed brace", template)
		}
		name, width, _ := strings.Cut(inner, ":")
		v := int64(0)
		switch name {
		case "video_key":
			out.WriteString(n.video)
			rest = behind
			continue
		case "chunk_index", "episode_chunk":
			v = n.chunk
		case "file_index":
			v = n.file
		case "episode_index":
			v = n.episode
		default:
			return "", fmt.Errorf("the path %.200q has the unknown placeholder {%.50s}", template, inner)
		}
		digits := 0
		if width != "" {
			var err error
			if digits, err = strconv.Atoi(strings.TrimSuffix(width, "d")); err != nil || digits < 0 || digits > 20 {
				return "", fmt.Errorf("the path %.200q has the unknown placeholder {%.50s}", template, inner)
			}
		}
		fmt.Fprintf(&out, "%0*d", digits, v)
		rest = behind
	}
	name := out.String()
	if name == "" || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "..") {
		return "", fmt.Errorf("the path %.200q leads out of the folder", name)
	}
	return name, nil
}

// Deltas are the requested times relative to a record's own, by feature.
type Deltas map[string][]float64

// maxDeltas is the maximum number of times per feature.
const maxDeltas = 1 << 12

// ParseDeltas parses "action=0:16;observation.state=-0.1,0". a:b are the frames from a to b (exclusive), with fps
// frames per second. Other times are in seconds.
func ParseDeltas(text string, fps float64) (Deltas, error) {
	all := Deltas{}
	for part := range strings.SplitSeq(text, ";") {
		name, list, ok := strings.Cut(part, "=")
		if !ok || name == "" || list == "" || all[name] != nil {
			return nil, fmt.Errorf("deltas=%.100s: give each feature once with its times, such as action=0:16;observation.state=-0.1,0", part)
		}
		var at []float64
		if a, b, ok := strings.Cut(list, ":"); ok {
			first, err1 := strconv.Atoi(a)
			last, err2 := strconv.Atoi(b)
			if err1 != nil || err2 != nil || first >= last || last-first > maxDeltas {
				return nil, fmt.Errorf("deltas=%.100s: a range needs two frame numbers in ascending order, with at most %d frames", part, maxDeltas)
			}
			for k := first; k < last; k++ {
				at = append(at, float64(k)/fps)
			}
		} else {
			for s := range strings.SplitSeq(list, ",") {
				v, err := strconv.ParseFloat(s, 64)
				if err != nil || math.Abs(v) > 1e6 || math.IsNaN(v) || len(at) == maxDeltas {
					return nil, fmt.Errorf("deltas=%.100s: %.20q is not a number of seconds", part, s)
				}
				// A time between two frames is most likely a mistake.
				if k := v * fps; math.Abs(k-math.Round(k)) > 1e-4*fps+1e-9 {
					return nil, fmt.Errorf("deltas=%.100s: %s s is not a whole number of frames at %v frames per second", part, s, fps)
				}
				at = append(at, v)
			}
		}
		all[name] = at
	}
	return all, nil
}
