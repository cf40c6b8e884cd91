package cli

import (
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/pack"
)

func newConvertCommand(app *App) *cobra.Command {
	var f packFlags
	cmd := &cobra.Command{
		Use:     "convert PACK OUT --images keep|dct|raw",
		GroupID: groupData,
		Short:   "Store the images of a pack in another way",
		Long: `Write the pack PACK anew to OUT with its images stored in another way. Records,
their order, labels and paths stay the same, and so does every pixel:

  keep  image files; what is stored as dct becomes JPEGs again
  dct   JPEGs without their entropy code, where they allow it
  raw   decoded pixels, resized if --resize says so

Raw pixels cannot become files again. If it is interrupted, the same command
goes on where it stopped.`,
		Example: `  stoker convert train/ train-raw/ --images raw --resize 256`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := f.options()
			if err != nil {
				return err
			}
			return app.runPack(&f, opt, args[1], "converting", func() (*pack.Summary, error) {
				return pack.Convert(app.Context, args[0], args[1], opt)
			})
		},
	}
	cmd.Flags().StringVar(&f.opt.Images, "images", "", "how images are to be stored: keep, dct or raw")
	_ = cmd.MarkFlagRequired("images")
	f.register(cmd)
	return cmd
}
