package policyquery

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/queryapi"
)

var (
	_ queryapi.Describer = Plans{}
	_ queryapi.Sharer    = Plans{}
)

// planStates are the states of Plans. Those of Plans that are over come last.
var planStates = []v1alpha1.PlanState{
	v1alpha1.PlanFreezing, v1alpha1.PlanWaiting, v1alpha1.PlanApproved, v1alpha1.PlanDone, v1alpha1.PlanSuperseded, v1alpha1.PlanExpired,
}

// planStatesShown is how many of them are listed unless others are wanted.
const planStatesShown = 3

// planParameters are the parameters of Plans.
var planParameters = []queryapi.Parameter{
	{Name: "plan", Description: "Only the Plan with this name, in any state."},
	{Name: "state", Description: "Only Plans in these states; the default is Freezing, Waiting and Approved, and the last dry run of a policy in mode DryRun.", Repeated: true, Enum: stateNames()},
	{Name: "member", Description: "List only targets in these members, <namespace>/<name>.", Repeated: true},
	{Name: "namespace", Description: "List only targets in these namespaces.", Repeated: true},
	{Name: "kind", Description: "List only targets of these kinds, such as Deployment.apps.", Repeated: true},
	{Name: "limit", Description: fmt.Sprintf("Maximum number of items per page, 1 to %d; the default is %d.", maxLimit, defaultLimit), Type: "integer"},
	{Name: "continue", Description: "The continue value of the previous page."},
}

func stateNames() (names []string) {
	for _, s := range planStates {
		names = append(names, string(s))
	}
	return names
}

// Describe implements queryapi.Describer.
func (Plans) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "List the Plans of a FleetPolicy: what it would write, frozen so that people can approve it, with the targets that the caller may list.",
		Parameters:  planParameters, Response: PlanList{},
	}
}

// planParams are the parameters of a request. Of a repeated parameter any value may match.
type planParams struct {
	plan                               string
	states, members, namespaces, kinds []string
	current                            bool // no states were asked for
	limit                              int
	after                              *planCursor
	selection                          string // a digest of all but the page
}

// parsePlanParams parses query parameters. Errors are 400.
func parsePlanParams(values url.Values) (*planParams, error) {
	a := &planParams{limit: defaultLimit}
	for name, given := range values {
		i := slices.IndexFunc(planParameters, func(p queryapi.Parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return nil, badParameter(name, "is not supported")
		case !planParameters[i].Repeated && len(given) > 1:
			return nil, badParameter(name, "is given more than once")
		}
		for _, v := range given {
			if allowed := planParameters[i].Enum; allowed != nil && !slices.Contains(allowed, v) {
				return nil, badParameter(name, fmt.Sprintf("%q is not one of %s", v, strings.Join(allowed, ", ")))
			}
		}
	}
	a.plan, a.states = values.Get("plan"), values["state"]
	a.members, a.namespaces, a.kinds = values["member"], values["namespace"], values["kind"]
	if a.plan == "" && a.states == nil {
		a.states, a.current = stateNames()[:planStatesShown], true
	}
	a.selection = selectionOf(values)
	return a, a.setPage(values)
}

func (a *planParams) setPage(values url.Values) error {
	if values.Has("limit") {
		n, err := strconv.Atoi(values.Get("limit"))
		if err != nil || n < 1 || n > maxLimit {
			return badParameter("limit", fmt.Sprintf("is not a number from 1 to %d", maxLimit))
		}
		a.limit = n
	}
	if text := values.Get("continue"); text != "" {
		a.after = &planCursor{}
		if !a.after.decode(text) {
			return badParameter("continue", "is not a value that this server returned")
		}
		if a.after.Selection != a.selection {
			return badParameter("continue", "is of a request with other parameters")
		}
	}
	return nil
}

// selectionOf is a digest of the parameters that all pages of a list have in common.
func selectionOf(values url.Values) string {
	common := url.Values{}
	for name, given := range values {
		if name != "limit" && name != "continue" {
			common[name] = given
		}
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(common.Encode())) // never fails
	return strconv.FormatUint(sum.Sum64(), 36)
}

// matchesPlan reports whether a Plan is wanted.
func (a *planParams) matchesPlan(p *v1alpha1.Plan) bool {
	state := p.Status.State
	if state == "" {
		state = v1alpha1.PlanFreezing
	}
	answers := a.current && p.Spec.Purpose == v1alpha1.PlanDryRun && state == v1alpha1.PlanDone
	return (a.plan == "" || a.plan == p.Name) && (answers || matches(a.states, string(state)))
}

// matchesTarget reports whether a target is wanted.
func (a *planParams) matchesTarget(g *v1alpha1.PlanGroup, t *v1alpha1.PlannedTarget) bool {
	return matches(a.members, g.Member) && matches(a.kinds, g.Kind) && matches(a.namespaces, t.Namespace)
}

// planCursor is the position after the last item of a page.
type planCursor struct {
	Selection string     `json:"s"`
	Plans     []string   `json:"u"` // UIDs: that of the last item, and those to be listed after it
	Part      int        `json:"p"`
	Target    PlanTarget `json:"t"`

	first int // the position of the first of Plans
}

func (c planCursor) encode(selected []*v1alpha1.Plan) string {
	for _, p := range selected[c.first:] {
		c.Plans = append(c.Plans, string(p.UID))
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (c *planCursor) decode(text string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && json.Unmarshal(raw, c) == nil && c.Part >= 1 && len(c.Plans) >= 1 && len(c.Plans) <= maxPlans
}
