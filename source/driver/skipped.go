package driver

// Skipper is implemented by sources that have found inputs which are not records, such as files
// without a partner. Packs list them.
type Skipper interface {
	// Skipped lists the inputs. It returns nil if there are none.
	Skipped() []Skipped
}

// Skipped is an input that is not a record, or several with the same reason.
type Skipped struct {
	Path, Reason string
	// Beside reports that the input has another kind than the records, such as a text in a folder
	// of images. Other inputs count as bad.
	Beside bool `json:",omitempty"`
	// Count is the number of inputs with this reason, 0 for the single input at Path. Examples are
	// the paths of some of them.
	Count    int64    `json:",omitempty"`
	Examples []string `json:",omitempty"`
}

// SkippedGroup counts the inputs that were skipped for one reason.
type SkippedGroup struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	// Examples are the paths of the first of them, at most MaxExamples.
	Examples []string `json:"examples"`
	// Bad reports that the inputs would be records if they could be read.
	Bad bool `json:"bad,omitempty"`
}

// MaxExamples is the number of inputs listed per reason.
const MaxExamples = 3

// GroupSkipped groups the inputs that a source has skipped by reason, in order of first occurrence.
// It returns nil if nothing was skipped.
func GroupSkipped(s Source) []SkippedGroup {
	sk, ok := As[Skipper](s)
	if !ok {
		return nil
	}
	var out []SkippedGroup
	at := map[string]int{}
	for _, s := range sk.Skipped() {
		i, ok := at[s.Reason]
		if !ok {
			i, at[s.Reason] = len(out), len(out)
			out = append(out, SkippedGroup{Reason: s.Reason, Bad: !s.Beside})
		}
		g := &out[i]
		g.Count += max(s.Count, 1)
		names := s.Examples
		if names == nil {
			names = []string{s.Path}
		}
		g.Examples = append(g.Examples, names[:min(len(names), MaxExamples-len(g.Examples))]...)
	}
	return out
}
