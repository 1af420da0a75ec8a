package notified

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// Reasons of the condition Notifying.
const (
	reasonAllowed    = "Allowed"
	reasonNotAllowed = "NotAllowed"
)

// allows reports whether a list, as Ceiling.Notifications of the API, allows a Notification.
func allows(allowed []string, notification string) bool {
	return slices.Contains(allowed, notification) || slices.Contains(allowed, v1alpha1.AllNotifications)
}

// Condition returns the condition Notifying of a FleetPolicy that names Notifications. why says why others than the allowed
// ones are not.
func Condition(names, allowed []string, why string) metav1.Condition {
	var denied []string
	for _, name := range names {
		if !allows(allowed, name) {
			denied = append(denied, strconv.Quote(name))
		}
	}
	if len(denied) == 0 {
		return metav1.Condition{
			Type: v1alpha1.Notifying, Status: metav1.ConditionTrue, Reason: reasonAllowed, Message: "the Notifications of spec.notifications are sent transitions of the policy",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.Notifying, Status: metav1.ConditionFalse, Reason: reasonNotAllowed, Message: fmt.Sprintf("spec.notifications: %s: %s", strings.Join(denied, ", "), why),
	}
}

// Index is which FleetPolicies name which Notification, and may. The zero Index has not been set.
type Index struct {
	policies atomic.Pointer[map[string]map[string]bool] // by Notification
}

// Set replaces what the Index has. mayName returns which Notifications a FleetPolicy may name, and why no others; it is asked
// about those that name any.
func (x *Index) Set(policies []*v1alpha1.FleetPolicy, mayName func(*v1alpha1.FleetPolicy) (allowed []string, why string)) {
	next := map[string]map[string]bool{}
	for _, fp := range policies {
		if len(fp.Spec.Notifications) == 0 {
			continue
		}
		allowed, _ := mayName(fp)
		for _, name := range fp.Spec.Notifications {
			if !allows(allowed, name) {
				continue
			}
			if next[name] == nil {
				next[name] = map[string]bool{}
			}
			next[name][fp.Name] = true
		}
	}
	x.policies.Store(&next)
}

// Policies returns the names of the FleetPolicies that name a Notification and may; nil before Set. It must not be changed.
func (x *Index) Policies(notification string) map[string]bool {
	all := x.policies.Load()
	if all == nil {
		return nil
	}
	if of := (*all)[notification]; of != nil {
		return of
	}
	return map[string]bool{}
}
