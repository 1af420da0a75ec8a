package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
)

// actionsPage is how many Actions one request gets; each may have half a megabyte.
const actionsPage = "100"

// actionsList are the flags of `federator actions list`.
type actionsList struct {
	policy, member, phase string
	since                 time.Duration
	output                string
}

func newActionsListCommand(hub *hubFlags) *cobra.Command {
	var l actionsList
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List Actions, the newest last",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), hub, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&l.policy, "policy", "", "only of the FleetPolicy of that `name`")
	fs.StringVar(&l.member, "member", "", "only of the member `namespace/name`")
	fs.StringVar(&l.phase, "phase", "", "only in that `phase`, such as Succeeded")
	fs.DurationVar(&l.since, "since", 0, "only those that were recorded within that `time`, such as 1h")
	fs.StringVarP(&l.output, "output", "o", "", "wide, name, json or yaml")
	return cmd
}

func (l *actionsList) run(ctx context.Context, hub *hubFlags, out io.Writer) error {
	selector, err := l.selector()
	if err != nil {
		return badInput(err)
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
	text, err := l.render(list, now, colored(out))
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// selector has the hub sort out what is not asked for.
func (l *actionsList) selector() (string, error) {
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

// actions returns the Actions that are selected and kept, the newest last.
func (c *hubClient) actions(ctx context.Context, selector string, keep func(*v1alpha1.Action) bool) (*v1alpha1.ActionList, error) {
	out := &v1alpha1.ActionList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "ActionList"}, Items: []v1alpha1.Action{},
	}
	for next := ""; ; {
		page := &v1alpha1.ActionList{}
		r := c.objects("GET", v1alpha1.Actions).Param("limit", actionsPage)
		if selector != "" {
			r = r.Param("fieldSelector", selector)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		if err := do(ctx, r, page); err != nil {
			return nil, c.explain(err, "actions", "")
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

// within orders actions that were recorded within the same second: by when they began,
// or ended, which is not known of all.
func within(a *v1alpha1.Action) time.Time {
	switch {
	case a.Status.StartedAt != nil:
		return a.Status.StartedAt.Time
	case a.Status.EndedAt != nil:
		return a.Status.EndedAt.Time
	}
	return a.CreationTimestamp.Add(time.Second) // it is on its way
}

// begun is when an action began, to the microsecond where that is known.
func begun(a *v1alpha1.Action) time.Time {
	if a.Status.StartedAt != nil {
		return a.Status.StartedAt.Time
	}
	return a.CreationTimestamp.Time
}

func (l *actionsList) render(list *v1alpha1.ActionList, now time.Time, color bool) ([]byte, error) {
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
	return actionsTable(list.Items, l.output == "wide", now, color), nil
}

func actionsTable(list []v1alpha1.Action, wide bool, now time.Time, color bool) []byte {
	t := newTable("NAME", "POLICY", "MEMBER", "VERB", "KIND", "NAMESPACE", "TARGET", "PHASE", "AGE")
	if wide {
		t.head("MODE", "ATTEMPTS", "COMMIT", "VIOLATION", "MESSAGE")
	}
	for n := range list {
		a := &list[n]
		s := &a.Spec
		begin := begun(a)
		row := []cell{
			{text: a.Name},
			{text: s.Binding},
			{text: s.Target.Member},
			{text: string(s.Verb)},
			{text: string(s.Target.Kind)},
			{text: s.Target.Namespace},
			{text: s.Target.Name},
			phaseCell(a.Status.Phase),
			{text: age(now, &begin)},
		}
		if wide {
			commit := string(s.Origin.Commit)
			row = append(row, cell{text: string(s.Mode)}, cell{text: fmt.Sprint(a.Status.Attempts), right: true},
				cell{text: commit[:min(len(commit), 12)]}, cell{text: s.Violation}, cell{text: a.Status.Message})
		}
		t.row(row...)
	}
	return t.render(color)
}

// phaseCell shows a phase; an Action without one is on its way.
func phaseCell(p v1alpha1.ActionPhase) cell {
	c := cell{text: string(p)}
	switch p {
	case "":
		c.text = string(v1alpha1.PhasePending)
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseDryRunPassed:
		c.color = green
	case v1alpha1.PhaseFailed:
		c.color = red
	case v1alpha1.PhaseContended, v1alpha1.PhaseRolledBack, v1alpha1.PhaseProtected:
		c.color = yellow
	}
	return c
}

func newActionsShowCommand(hub *hubFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all of one Action, with what it changes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, output) {
				return badInput(fmt.Errorf("--output %q is not json or yaml", output))
			}
			client, err := hub.open()
			if err != nil {
				return err
			}
			a, err := client.action(cmd.Context(), actionName(args[0]))
			if err != nil {
				return err
			}
			a.ManagedFields = nil
			text, err := renderAction(a, output, time.Now(), colored(cmd.OutOrStdout()))
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

// actionName is a name as list -o name prints it, or without the resource.
func actionName(arg string) string {
	if _, name, ok := strings.Cut(arg, "/"); ok {
		return name
	}
	return arg
}

func renderAction(a *v1alpha1.Action, output string, now time.Time, color bool) ([]byte, error) {
	switch output {
	case "json":
		b, err := json.MarshalIndent(a, "", "  ")
		return append(b, '\n'), err
	case "yaml":
		return yaml.Marshal(a)
	}
	return actionText(a, now, color), nil
}

var errTimeUp = errors.New("nobody has answered in time")
