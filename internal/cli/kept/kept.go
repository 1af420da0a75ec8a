package kept

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/persistence"
)

const inspectHelp = `Print what is kept on disk of the index: of each member how much, up to which revision, how old,
and whether all of it is as it was written. What is not is never repaired: it is listed again.

Nothing is changed, and federator may run meanwhile. Without a directory it is that of the
configuration. The command fails where something is not sound.

  federator persistence inspect
  federator persistence inspect /var/lib/federator -o json`

// Command returns `federator persistence`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "persistence", Short: "Look at what is kept on disk over restarts",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInspectCommand())
	return cmd
}

func newInspectCommand() *cobra.Command {
	var flags config.Flags
	var keyFile, output string
	cmd := &cobra.Command{
		Use: "inspect [DIRECTORY]", Short: "Print what is kept, and whether it is sound",
		Long: inspectHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q is not json", output)
			}
			dir, configured, err := directory(cmd.Flags(), &flags, args)
			if err != nil {
				return err
			}
			if keyFile == "" {
				keyFile = configured
			}
			key, err := fleet.ReadKey(keyFile)
			if err != nil {
				return fmt.Errorf("--key-file: %w", err)
			}
			index, err := persistence.Inspect(cmd.Context(), dir, key)
			if err != nil {
				return err
			}
			found := &inspection{Inspection: index}
			if found.Verdicts, err = verdictmemory.Inspect(dir, key); err != nil {
				return err
			}
			if output == "json" {
				err = console.WriteJSON(cmd.OutOrStdout(), found)
			} else {
				err = write(cmd.OutOrStdout(), found, time.Now())
			}
			if err != nil {
				return err
			}
			return unsound(found)
		},
	}
	flags.Register(cmd.Flags())
	cmd.Flags().StringVar(&keyFile, "key-file", "", "`file` with the key, in Base64 (default: that of the configuration)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json")
	return cmd
}

// inspection is what is kept in a directory.
type inspection struct {
	*persistence.Inspection

	Verdicts verdictmemory.Contents `json:"verdicts"`
}

// directory returns which directory is meant, and the key file that is configured for it.
func directory(fs *pflag.FlagSet, flags *config.Flags, args []string) (dir, keyFile string, err error) {
	if len(args) == 1 {
		return args[0], "", nil
	}
	cfg, err := flags.Load(fs, func(*config.Config) {})
	if err != nil {
		return "", "", err
	}
	if dir, err = fleet.PersistenceDirectory(&cfg); dir == "" && err == nil {
		err = errors.New("the configuration keeps nothing: see persistence.directory")
	}
	return dir, cfg.Persistence.KeyFile, err
}

// unsound is the error of a directory of which not all would be loaded.
func unsound(found *inspection) error {
	if found.Problem != "" {
		return exit.Findings(found.Problem)
	}
	if why := found.Verdicts.Problem; why != "" {
		return exit.Findings("of violations and quarantines not all is sound: " + why)
	}
	n := 0
	for _, m := range found.Members {
		if len(m.Problems) > 0 {
			n++
		}
	}
	if n > 0 {
		return exit.Findings(fmt.Sprintf("of %d of %d members not all is sound: that is listed again", n, len(found.Members)))
	}
	return nil
}

func write(out io.Writer, found *inspection, now time.Time) error {
	t := console.NewTable("MEMBER", "SEGMENTS", "LOGS", "FRAMES", "BYTES", "REVISION", "WRITTEN", "PROBLEMS")
	for _, m := range found.Members {
		problems := console.Cell{Text: "none"}
		if len(m.Problems) > 0 {
			problems = console.Cell{Text: strings.Join(m.Problems, "; "), Color: console.Red}
		}
		t.AddRow(console.Cell{Text: m.Name}, number(int64(m.Segments)), number(int64(m.Logs)), number(int64(m.Frames)), number(m.Bytes), number(int64(m.Revision)),
			console.Cell{Text: now.Sub(m.Written).Round(time.Second).String() + " ago"}, problems)
	}
	use := "no process uses it"
	if found.InUse {
		use = "a process uses it"
	}
	readers := "readers list again after a restart"
	if found.Readers > 0 {
		readers = fmt.Sprintf("readers go on from revisions up to %d", found.Readers)
	}
	_, err := fmt.Fprintf(out, "%s: %d bytes, encrypted: %t, %s, %s\nof %d violations it is known when they were first seen; quarantines: %d\n%s", found.Directory, found.Bytes,
		found.Encrypted, use, readers, found.Verdicts.Violations, found.Verdicts.Quarantines, t.Render(console.Colored(out)))
	return err
}

func number(n int64) console.Cell { return console.Cell{Text: fmt.Sprint(n), Right: true} }
