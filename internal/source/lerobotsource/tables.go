package lerobotsource

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/parquetsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// maxTable limits the memory for the table.
const maxTable = 32 << 30

// tableColumn is one of a table, with a value for each row, in memory.
type tableColumn struct {
	field driver.Field
	// dtype and shape describe a value, size is its size in data. Text is in texts.
	dtype driver.DType
	shape []int
	size  int64
	data  []byte
	texts []string
}

func (c *tableColumn) int(row int64) int64 {
	b := c.data[row*c.size:]
	if c.field.Kind == driver.KindFloat {
		return int64(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

func (c *tableColumn) float(row int64) float64 {
	b := binary.LittleEndian.Uint64(c.data[row*c.size:])
	if c.field.Kind == driver.KindFloat {
		return math.Float64frombits(b)
	}
	return float64(int64(b))
}

// table reads columns of the named Parquet files. Columns that do not exist are nil.
func table(ctx context.Context, st store.Store, names []string, want []column.Want, threads int) (rows int64, all []*tableColumn, err error) {
	src, err := parquetsource.Open(ctx, "parquet:"+st.Path(path.Dir(names[0])), st, &parquetsource.Options{Names: names, Columns: want, Threads: threads})
	if err != nil {
		return 0, nil, err
	}
	defer src.Close()
	info := src.Info()
	total := int64(0)
	for _, f := range info.Fields {
		c := &tableColumn{field: f, size: 8}
		switch f.Kind {
		case driver.KindArray:
			c.dtype, c.shape = f.DType, f.Shape
			if c.size, err = driver.ArrayBytes(f.DType, f.Shape); err != nil {
				return 0, nil, err
			}
		case driver.KindInt:
			c.dtype = driver.Int64
		case driver.KindFloat:
			c.dtype = driver.Float64
		case driver.KindText:
			c.texts = make([]string, 0, min(info.Len, 1<<20))
			c.size = 0
		default:
			return 0, nil, fmt.Errorf("%s: column %q has the unsupported kind %s", src.Info().URL, f.Name, f.Kind)
		}
		if total += c.size * info.Len; total > maxTable {
			return 0, nil, fmt.Errorf("%s: %d rows of its columns exceed the limit of %d GiB", info.URL, info.Len, maxTable>>30)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.data = make([]byte, c.size*info.Len)
	}
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	r := recordread.NewDirect(src, obj)
	const group = 4096
	ids := make([]int64, 0, group)
	for at := int64(0); at < info.Len; at += group {
		ids = ids[:0]
		for id := at; id < min(at+group, info.Len); id++ {
			ids = append(ids, id)
		}
		recs, err := r.Read(ctx, ids)
		if err != nil {
			return 0, nil, err
		}
		for k := range recs {
			if err := recs[k].Err; err != nil {
				return 0, nil, err
			}
			for i, c := range all {
				v := &recs[k].Values[i]
				to := c.data[(at+int64(k))*c.size:][:c.size]
				switch c.field.Kind {
				case driver.KindInt:
					binary.LittleEndian.PutUint64(to, uint64(v.Int))
				case driver.KindFloat:
					binary.LittleEndian.PutUint64(to, math.Float64bits(v.Float))
				case driver.KindText:
					c.texts = append(c.texts, string(v.Bytes))
				default:
					if int64(len(v.Bytes)) != c.size {
						return 0, nil, fmt.Errorf("%s: column %q has %d bytes, expected %d", src.Name(at+int64(k)), c.field.Name, len(v.Bytes), c.size)
					}
					copy(to, v.Bytes)
				}
			}
		}
	}
	return info.Len, all, nil
}

// parquetFiles lists the Parquet files below a folder, sorted by name.
func parquetFiles(ctx context.Context, st store.Store, dir string) (names []string, err error) {
	err = st.List(ctx, dir, nil, func(e store.Entry) error {
		if strings.HasSuffix(e.Name, ".parquet") {
			names = append(names, e.Name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no Parquet files", st.Path(dir))
	}
	return names, err
}

// place is the position of an episode's frames in a camera's videos.
type place struct {
	name  string  // of the file
	begin float64 // in seconds
}

// episode is a run of rows.
type episode struct {
	from, to int64
	videos   []place // by camera
}

// readEpisodes reads the rows of episodes and the positions of their videos.
func readEpisodes(ctx context.Context, st store.Store, a *about, cameras []string, threads int) ([]episode, error) {
	if a.v2() {
		return a.episodesV2(ctx, st, cameras)
	}
	names, err := parquetFiles(ctx, st, "meta/episodes")
	if err != nil {
		return nil, err
	}
	number := func(name string) column.Want {
		return column.Want{Name: name, From: name, Kind: driver.KindInt}
	}
	want := []column.Want{number("dataset_from_index"), number("dataset_to_index")}
	for _, c := range cameras {
		of := "videos/" + c + "/"
		want = append(want, number(of+"chunk_index"), number(of+"file_index"), column.Want{Name: of + "from_timestamp", From: of + "from_timestamp", Kind: driver.KindFloat})
	}
	rows, cols, err := table(ctx, st, names, want, threads)
	if err != nil {
		return nil, err
	}
	if rows > maxEpisodes {
		return nil, fmt.Errorf("%s: it has %d episodes, the limit is %d", st.Path("meta/episodes"), rows, maxEpisodes)
	}
	all := make([]episode, rows)
	for k := range all {
		e, row := &all[k], int64(k)
		e.from, e.to = cols[0].int(row), cols[1].int(row)
		for c, camera := range cameras {
			of := cols[2+3*c:]
			n := numbers{chunk: of[0].int(row), file: of[1].int(row), episode: row, video: camera}
			name, err := n.expand(a.Video)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", st.Path(InfoName), err)
			}
			e.videos = append(e.videos, place{name, of[2].float(row)})
		}
	}
	return all, nil
}

// episodesV2 reads episodes that are separate files.
func (a *about) episodesV2(ctx context.Context, st store.Store, cameras []string) ([]episode, error) {
	const name = "meta/episodes.jsonl"
	b, err := store.ReadFile(ctx, st, name, maxJSON)
	if err != nil {
		return nil, err
	}
	var all []episode
	at, line := int64(0), 0
	for scan := newLines(b); scan.Scan(); {
		line++
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var one struct {
			Index  int64 `json:"episode_index"`
			Length int64 `json:"length"`
		}
		if err := json.Unmarshal(scan.Bytes(), &one); err != nil || one.Length < 0 || one.Length > 1<<40 || one.Index < 0 {
			return nil, fmt.Errorf("%s, line %d: expected an episode with its length", st.Path(name), line)
		}
		e := episode{from: at, to: at + one.Length}
		at = e.to
		for _, c := range cameras {
			n := numbers{chunk: one.Index / a.Chunks, episode: one.Index, video: c}
			file, err := n.expand(a.Video)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", st.Path(InfoName), err)
			}
			e.videos = append(e.videos, place{name: file})
		}
		if all = append(all, e); len(all) > maxEpisodes {
			return nil, fmt.Errorf("%s has more than %d episodes", st.Path(name), maxEpisodes)
		}
	}
	return all, nil
}

func newLines(b []byte) *bufio.Scanner {
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, maxJSON)
	return s
}

// readTasks reads the task texts by number. It returns nil if there are none.
func readTasks(ctx context.Context, st store.Store, a *about, threads int) (map[int64][]byte, error) {
	tasks := map[int64][]byte{}
	if a.v2() {
		const name = "meta/tasks.jsonl"
		b, err := store.ReadFile(ctx, st, name, maxJSON)
		if err != nil {
			return nil, ignoreMissing(err)
		}
		for scan := newLines(b); scan.Scan(); {
			var one struct {
				Index int64  `json:"task_index"`
				Task  string `json:"task"`
			}
			if len(bytes.TrimSpace(scan.Bytes())) == 0 {
				continue
			}
			if err := json.Unmarshal(scan.Bytes(), &one); err != nil {
				return nil, fmt.Errorf("%s: expected a task, got %.50q", st.Path(name), scan.Bytes())
			}
			tasks[one.Index] = []byte(one.Task)
		}
		return tasks, nil
	}
	const name = "meta/tasks.parquet"
	if _, err := st.Stat(ctx, name); err != nil {
		return nil, ignoreMissing(err)
	}
	// The text is pandas' index, which has a default name or the name task.
	for _, text := range []string{"__index_level_0__", "task"} {
		want := []column.Want{{Name: "task_index", From: "task_index", Kind: driver.KindInt}, {Name: "task", From: text, Kind: driver.KindText}}
		rows, cols, err := table(ctx, st, []string{name}, want, threads)
		if err != nil {
			if text == "task" {
				return nil, err
			}
			continue
		}
		for k := range rows {
			tasks[cols[0].int(k)] = []byte(cols[1].texts[k])
		}
		break
	}
	return tasks, nil
}

// checkEpisodes returns an error if the episodes do not cover the rows of the table.
func checkEpisodes(all []episode, rows int64) error {
	at := int64(0)
	for k, e := range all {
		if e.from != at || e.to < e.from {
			return fmt.Errorf("episode %d has the rows %d to %d, but the one before ends at %d", k, e.from, e.to, at)
		}
		at = e.to
	}
	if at != rows {
		return fmt.Errorf("its episodes have %d rows, but its data %d", at, rows)
	}
	return nil
}

// isNumber reports whether the values of a feature are numbers in the table.
func (f *feature) isNumber() bool {
	return !slices.Contains([]string{"video", "image", "string"}, f.DType)
}

func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}
