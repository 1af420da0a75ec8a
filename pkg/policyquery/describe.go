package policyquery

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

var _, _ queryapi.Describer = &Rego{}, Violations{}

// regoParameters are all that Rego accepts.
var regoParameters = []queryapi.Parameter{
	{Name: "query", About: "The Rego to evaluate over data.fleet, such as count(data.fleet.objects.Pod).", Required: true},
}

// Describe implements queryapi.Describer.
func (*Rego) Describe() queryapi.Description {
	return queryapi.Description{
		About:      "Evaluate Rego over what the caller may list of the fleet. Each row is one way in which the query holds.",
		Parameters: regoParameters, Answer: policy.Answer{},
	}
}

// Describe implements queryapi.Describer.
func (Violations) Describe() queryapi.Description {
	d := queryapi.Description{
		About: "List what policies have found, as far as the caller may read what they looked at; by groups with groupBy. " +
			"With watch=true the answer is a stream of events, one in a line: ADDED, MODIFIED and DELETED have a finding; " +
			"BOOKMARK says how far the watch is, after the events that lead there; ERROR has a Status, and is the last.",
		Answer: Found{}, Events: []any{Finding{}, Mark{}},
	}
	for _, p := range accepted {
		d.Parameters = append(d.Parameters, p.Parameter)
	}
	return d
}

// parameter is one that Violations accepts, and what takes it.
type parameter struct {
	queryapi.Parameter
	all func(*asked) *[]string // where it may be given more than once
	one func(*asked, string) error
}

// What some parameters may have.
var (
	severities = policy.Severities()
	states     = []string{policy.Known.String(), policy.Unknown.String(), policy.Error.String()}
	groups     = slices.Sorted(maps.Keys(groupers))
)

// accepted are all that Violations accepts.
var accepted = []parameter{
	list("policy", "Only of these policies.", nil, func(a *asked) *[]string { return &a.policies }),
	list("package", "Only of policies of these packages.", nil, func(a *asked) *[]string { return &a.packages }),
	list("severity", "Only of policies of these severities.", severities, func(a *asked) *[]string { return &a.severities }),
	list("member", "Only in these members, <namespace>/<name>.", nil, func(a *asked) *[]string { return &a.members }),
	list("namespace", "Only in these namespaces.", nil, func(a *asked) *[]string { return &a.namespaces }),
	list("kind", "Only on these kinds, such as Pod or Deployment.apps.", nil, func(a *asked) *[]string { return &a.kinds }),
	list("state", "Only in these states.", states, func(a *asked) *[]string { return &a.states }),
	list("groupBy", fmt.Sprintf("Count findings by these, %d at most, instead of listing them.", maxGroupBy), groups,
		func(a *asked) *[]string { return &a.groupBy }),
	once("exempt", "true: only subjects with exempt violations; false: only those with others.", "boolean", (*asked).setExempt),
	once("limit", fmt.Sprintf("How many findings a page has, 1 to %d, by default %d.", maxLimit, defaultLimit), "integer", (*asked).setLimit),
	once("continue", "The page after the one that had this as its continue.", "", (*asked).setContinue),
	once("watch", "Go on with changes, as events. Neither groupBy nor continue go with it.", "boolean", (*asked).setWatch),
	once("resourceVersion", "Of a watch: only what has changed since the answer or event that had it, which was to the same parameters.", "", (*asked).setVersion),
	once("timeoutSeconds", "Of a watch: when it ends, after an hour at the latest.", "integer", (*asked).setTimeout),
}

func list(name, about string, values []string, all func(*asked) *[]string) parameter {
	return parameter{queryapi.Parameter{Name: name, About: about, Many: true, Values: values}, all, nil}
}

func once(name, about, kind string, one func(*asked, string) error) parameter {
	return parameter{queryapi.Parameter{Name: name, About: about, Type: kind}, nil, one}
}

var errBool = errors.New("is neither true nor false")

func (a *asked) setExempt(value string) error {
	if value != "true" && value != "false" {
		return errBool
	}
	a.exempt = value
	return nil
}

func (a *asked) setLimit(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxLimit {
		return fmt.Errorf("is no number from 1 to %d", maxLimit)
	}
	a.limit = n
	return nil
}

func (a *asked) setContinue(value string) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(value)
	a.after = &cursor{}
	if err != nil || json.Unmarshal(text, a.after) != nil || a.after.Policy == "" {
		return errors.New("is not what an answer had")
	}
	return nil
}

func (a *asked) setWatch(value string) error {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return errBool
	}
	a.watched = yes
	return nil
}

func (a *asked) setVersion(value string) error {
	if a.version = value; value == "0" {
		a.version = "" // any will do
	}
	return nil
}

func (a *asked) setTimeout(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errors.New("is no number of seconds")
	}
	a.timeout = time.Duration(n) * time.Second
	return nil
}
