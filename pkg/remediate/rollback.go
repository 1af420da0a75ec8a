package remediate

import (
	"context"
	"errors"
	"fmt"

	"federator.dev/federator/pkg/policy"
)

// Errors of taking actions back.
var (
	// ErrIrreversible is of an action that cannot be taken back.
	ErrIrreversible = errors.New("the action cannot be taken back")
	// ErrChanged is of an action whose target is not any more as the action left it.
	ErrChanged = errors.New("the target has changed since the action")
)

// present is an object of a member as it is now.
type present struct {
	APIVersion, UID, ResourceVersion string // "" where there is none
	Digest                           string // of its content, as in Action.Before and After; "" where there is none
}

// lookAt asks the member for an action's target.
func lookAt(ctx context.Context, clients Clients, a *Action) (present, error) {
	c, err := clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return present{}, err
	}
	object, err := c.get(ctx, &a.Intent)
	if err != nil {
		return present{}, fmt.Errorf("%s: %s", a.Remedy.Target, explain(err, a.Remedy.Target)) //nolint:errorlint // Bounded.
	}
	t := present{Digest: digest(object, isSecret(a.Remedy.Target.Kind))}
	t.APIVersion, _ = object["apiVersion"].(string)
	t.UID, t.ResourceVersion = identity(object)
	return t, nil
}

// takeBack returns the intent that takes an action back: it goes the way of every
// other, with the target as it is now for its precondition. Where the target is not
// as the action left it, it is ErrChanged unless forced, which also takes over the
// fields of others.
func takeBack(a *Action, now present, force bool) (*Intent, error) {
	switch {
	case a.Phase != Succeeded:
		return nil, fmt.Errorf("action %q: %w: it is %s", a.Name, ErrIrreversible, a.Phase)
	case a.InverseVerb == "":
		return nil, fmt.Errorf("action %q: %w: %s", a.Name, ErrIrreversible, a.Irreversible)
	case now.UID == "" && a.InverseVerb != "apply":
		return nil, fmt.Errorf("action %q: %w: the target is gone", a.Name, ErrIrreversible)
	case now.Digest != a.After && !force:
		return nil, fmt.Errorf("action %q: %w", a.Name, ErrChanged)
	}
	i := a.Intent
	i.Message, i.RollbackOf, i.DryRun, i.Force = "takes back "+a.Name, a.Name, false, force
	i.APIVersion, i.UID, i.ResourceVersion = a.APIVersion, now.UID, now.ResourceVersion
	i.Remedy = policy.Remedy{Action: a.InverseVerb, Target: a.Remedy.Target}
	switch body := a.Inverse; a.InverseVerb {
	case "apply":
		i.Remedy.Object = body
	case "patch":
		i.Remedy.Patch = body
	}
	return &i, nil
}
