package pairsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestLayout(t *testing.T) {
	for name, c := range map[string]struct {
		files string // %d is the number of a record
		want  string // the result of Layout, "" for nil
	}{
		"masks":        {"images/%d.jpg masks/%d.png", "image=images/*.jpg&mask=masks/*.png"},
		"capitals":     {"Images/%d.JPG Masks/%d.png", "image=Images/*.JPG&mask=Masks/*.png"},
		"labels":       {"images/%d.png labels/%d.png", "image=images/*.png&mask=labels/*.png"},
		"volumes":      {"images/c%d.nii.gz labels/c%d.nii.gz", "image=images/*.nii.gz&label=labels/*.nii.gz"},
		"nnU-Net":      {"imagesTr/c_%d_0000.nii.gz imagesTr/c_%d_0001.nii.gz labelsTr/c_%d.nii.gz imagesTs/t_%d_0000.nii.gz", "image=imagesTr/*_0000.nii.gz&label=labelsTr/*.nii.gz"},
		"ends":         {"images/%d.jpg masks/%d_mask.png", "image=images/*.jpg&mask=masks/*_mask.png"},
		"folders":      {"images/train/%d.jpg masks/train/%d.png", "image=images/**/*.jpg&mask=masks/**/*.png"},
		"several":      {"images/%d.jpg images/b%d.png masks/%d.png", "image=images/*&mask=masks/*.png"},
		"JSON":         {"img/%d.jpg ann/%d.jpg.json", "image=img/*.jpg&annotation=ann/*.jpg.json"},
		"two":          {"images/%d.jpg masks/%d.png ann/%d.json", "image=images/*.jpg&mask=masks/*.png&annotation=ann/*.json"},
		"VOC":          {"images/%d.jpg annotations/%d.xml", ""},
		"YOLO":         {"images/%d.jpg labels/%d.txt", ""},
		"classes":      {"images/%d.jpg labels/b%d.jpg", ""},
		"one and ten":  {"images/%d.jpg masks/%d0.png", ""},
		"other names":  {"cats/%d.jpg dogs/%d.jpg", ""},
		"images alone": {"images/%d.jpg", ""},
		"mixed":        {"images/%d.nii.gz masks/%d.png", ""},
	} {
		dir := t.TempDir()
		for _, f := range strings.Fields(c.files) {
			for i := range 4 {
				drivertest.Put(t, dir, fmt.Sprintf(f, i+1), []byte("x"))
			}
		}
		st := localstore.New(dir)
		fields := Layout(t.Context(), st)
		got := ""
		if fields != nil {
			_, got, _ = strings.Cut(URL(dir, fields), "?")
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		err := NoFields(t.Context(), st)
		if fields != nil && !strings.Contains(err.Error(), "'pairs:"+dir+"?"+c.want+"'") || fields == nil && !strings.Contains(err.Error(), "no fields") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
