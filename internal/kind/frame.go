package kind

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// partner is the image that a mask belongs to: they have the same size.
type partner struct {
	image, mask int // fields; image is -1 if there is none
	// turns reports that the mask is rotated like the image.
	turns bool
}

// partner finds the image that the mask of w belongs to.
func (p *Planner) partner(w *Want) partner {
	i := slices.IndexFunc(p.Wants, func(o Want) bool { return o.Out.Name == w.Out.Follow })
	if !w.Out.Mask || i < 0 || p.Wants[i].F.Kind != driver.KindImage || p.Wants[i].Field == w.Field {
		return partner{image: -1}
	}
	return partner{p.Wants[i].Field, w.Field, w.F.Stored && p.ApplyOrientation}
}

// check rotates the mask of a record like its image, and compares their final sizes.
func (pt *partner) check(p *Planner, dec *decode.Decoder, rec *driver.Record) error {
	if pt.image < 0 {
		return nil
	}
	image, err := dec.Info(rec.Values[pt.image])
	if err != nil {
		return err
	}
	if pt.turns {
		rec.Values[pt.mask].Orientation = image.Orientation
	}
	mask, err := dec.Info(rec.Values[pt.mask])
	if err != nil {
		return err
	}
	if image.Width != mask.Width || image.Height != mask.Height {
		return fmt.Errorf("the image %s has %d x %d pixels and its mask %s has %d x %d: %s", p.place(rec, pt.image), image.Width, image.Height,
			p.place(rec, pt.mask), mask.Width, mask.Height, p.sizeHint(&rec.Values[pt.image], &image, &mask))
	}
	if p.ApplyOrientation || p.Info.Fields[pt.mask].Stored {
		return nil
	}
	turn := decode.Orientation(&rec.Values[pt.image])
	if turn < 2 || !orient.Fits(turn, image.Width, image.Height) || decode.Orientation(&rec.Values[pt.mask]) == turn {
		return nil
	}
	return fmt.Errorf("the EXIF orientation %d turns the image %s, and its mask %s does not say whether it belongs to the image before or after: "+
		orient.Ambiguous, turn, p.place(rec, pt.image), p.place(rec, pt.mask), "mask")
}

// sizeHint returns the advice for an image and a mask of different sizes.
func (p *Planner) sizeHint(v *driver.Value, image, mask *decode.Info) string {
	switch {
	case !orient.Swaps(decode.Orientation(v)) || image.Width != mask.Height || image.Height != mask.Width:
		return "images and their masks have the same size"
	case p.ApplyOrientation:
		return "the mask is that of the image before its EXIF orientation turns it; load with apply_orientation=False"
	}
	return "the mask is that of the image as its EXIF orientation turns it; load with apply_orientation=True"
}

// place returns a name for the value of a field: that of its file, if it has its own file.
func (p *Planner) place(rec *driver.Record, field int) string {
	name := fmt.Sprintf("%q", p.Info.Fields[field].Name)
	if paths, ok := driver.As[driver.Pather](p.Source); ok {
		if path := paths.Path(rec.ID, field); path != "" {
			name += " (" + path + ")"
		}
	}
	return name
}
