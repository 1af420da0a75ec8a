package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
)

// phaseNames are those of --phase.
var phaseNames = []v1alpha1.ActionPhase{
	v1alpha1.PhasePending, v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp,
	v1alpha1.PhaseFailed, v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended, v1alpha1.PhaseProtected, v1alpha1.PhaseManaged, v1alpha1.PhaseRolledBack,
}

// phaseOf finds a phase, however it is written.
func phaseOf(s string) (v1alpha1.ActionPhase, error) {
	n := slices.IndexFunc(phaseNames, func(p v1alpha1.ActionPhase) bool { return strings.EqualFold(string(p), s) })
	if n < 0 {
		return "", fmt.Errorf("--phase %q is none of %v", s, phaseNames)
	}
	return phaseNames[n], nil
}

// pageSize is how many Actions one request gets; each may have half a megabyte.
const pageSize = "100"

// listOptions are the flags of `federator actions list`.
type listOptions struct {
	policy, member, phase string
	since                 time.Duration
	output                string
}

func listCommand(hub *hubFlags) *cobra.Command {
	var l listOptions
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List Actions, newest last",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), hub, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&l.policy, "policy", "", "only of this FleetPolicy `name`")
	fs.StringVar(&l.member, "member", "", "only on this member `namespace/name`")
	fs.StringVar(&l.phase, "phase", "", "only in this `phase`, such as Succeeded")
	fs.DurationVar(&l.since, "since", 0, "only those recorded within this `time`, such as 1h")
	fs.StringVarP(&l.output, "output", "o", "", "wide, name, json or yaml")
	return cmd
}

func (l *listOptions) run(ctx context.Context, hub *hubFlags, out io.Writer) error {
	selector, err := l.selector()
	if err != nil {
		return exit.BadInput(err)
	}
	client, err := hub.open()
	if err != nil {
		return err
	}
	now := time.Now()
	list, err := client.actions(ctx, selector, func(a *v1alpha1.Action) bool {
		return l.since == 0 || now.Sub(a.CreationTimestamp.Time) <= l.since
	})
	if err != nil {
		return err
	}
	text, err := l.render(list, now, console.Colored(out))
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// selector returns the field selector of the flags.
func (l *listOptions) selector() (string, error) {
	if !slices.Contains([]string{"", "wide", "name", "json", "yaml"}, l.output) {
		return "", fmt.Errorf("--output %q is not wide, name, json or yaml", l.output)
	}
	if l.since < 0 {
		return "", fmt.Errorf("--since %s is negative", l.since)
	}
	set := fields.Set{}
	if l.policy != "" {
		set["spec.binding"] = l.policy
	}
	if l.member != "" {
		if ns, name, ok := strings.Cut(l.member, "/"); !ok || ns == "" || name == "" {
			return "", fmt.Errorf("--member %q is not of the form <namespace>/<name>", l.member)
		}
		set["spec.target.member"] = l.member
	}
	if l.phase != "" {
		phase, err := phaseOf(l.phase)
		if err != nil {
			return "", err
		}
		set["status.phase"] = string(phase)
	}
	return set.String(), nil
}

// within orders actions that were recorded within the same second: by when they started
// or ended, if that is known.
func within(a *v1alpha1.Action) time.Time {
	switch {
	case a.Status.StartedAt != nil:
		return a.Status.StartedAt.Time
	case a.Status.EndedAt != nil:
		return a.Status.EndedAt.Time
	}
	return a.CreationTimestamp.Add(time.Second) // not started yet
}

// startedAt is when an action started, to the microsecond if that is known.
func startedAt(a *v1alpha1.Action) time.Time {
	if a.Status.StartedAt != nil {
		return a.Status.StartedAt.Time
	}
	return a.CreationTimestamp.Time
}

func (l *listOptions) render(list *v1alpha1.ActionList, now time.Time, color bool) ([]byte, error) {
	switch l.output {
	case "json":
		b, err := json.MarshalIndent(list, "", "  ")
		return append(b, '\n'), err
	case "yaml":
		return yaml.Marshal(list)
	case "name":
		var b []byte
		for _, a := range list.Items {
			b = fmt.Appendf(b, "action.%s/%s\n", v1alpha1.SchemeGroupVersion().Group, a.Name)
		}
		return b, nil
	}
	if len(list.Items) == 0 {
		return []byte("No actions.\n"), nil
	}
	return listTable(list.Items, l.output == "wide", now, color), nil
}

func listTable(list []v1alpha1.Action, wide bool, now time.Time, color bool) []byte {
	t := console.NewTable("NAME", "POLICY", "MEMBER", "VERB", "KIND", "NAMESPACE", "TARGET", "PHASE", "AGE")
	if wide {
		t.AddHeader("ATTEMPTS", "COMMIT", "VIOLATION", "MESSAGE")
	}
	for n := range list {
		a := &list[n]
		s := &a.Spec
		started := startedAt(a)
		row := []console.Cell{
			{Text: a.Name},
			{Text: s.Binding},
			{Text: s.Target.Member},
			{Text: string(s.Verb)},
			{Text: string(s.Target.Kind)},
			{Text: s.Target.Namespace},
			{Text: s.Target.Name},
			phaseCell(a.Status.Phase),
			{Text: console.Age(now, &started)},
		}
		if wide {
			commit := string(s.Origin.Commit)
			row = append(row, console.Cell{Text: fmt.Sprint(a.Status.Attempts), Right: true},
				console.Cell{Text: commit[:min(len(commit), 12)]}, console.Cell{Text: s.Violation}, console.Cell{Text: a.Status.Message})
		}
		t.AddRow(row...)
	}
	return t.Render(color)
}

// phaseCell shows a phase; an Action without one is pending.
func phaseCell(p v1alpha1.ActionPhase) console.Cell {
	c := console.Cell{Text: string(p)}
	switch p {
	case "":
		c.Text = string(v1alpha1.PhasePending)
	case v1alpha1.PhaseSucceeded:
		c.Color = console.Green
	case v1alpha1.PhaseFailed:
		c.Color = console.Red
	case v1alpha1.PhaseContended, v1alpha1.PhaseRolledBack, v1alpha1.PhaseProtected, v1alpha1.PhaseManaged:
		c.Color = console.Yellow
	}
	return c
}

// actions returns the Actions that match, newest last.
func (c *hubClient) actions(ctx context.Context, selector string, keep func(*v1alpha1.Action) bool) (*v1alpha1.ActionList, error) {
	out := &v1alpha1.ActionList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "ActionList"}, Items: []v1alpha1.Action{},
	}
	for next := ""; ; {
		page := &v1alpha1.ActionList{}
		r := c.Objects("GET", v1alpha1.Actions).Param("limit", pageSize)
		if selector != "" {
			r = r.Param("fieldSelector", selector)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		if err := hubrequests.Do(ctx, r, page); err != nil {
			return nil, c.Explain(err, "actions", "")
		}
		for n := range page.Items {
			if a := &page.Items[n]; keep(a) {
				a.ManagedFields = nil
				out.Items = append(out.Items, *a)
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	slices.SortStableFunc(out.Items, func(a, b v1alpha1.Action) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), within(&a).Compare(within(&b)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
