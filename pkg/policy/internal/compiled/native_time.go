package compiled

import (
	"math"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy/internal/value"
)

var (
	minTime = time.Unix(0, math.MinInt64)
	maxTime = time.Unix(0, math.MaxInt64)
)

func parseRFC3339(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isTimeText(args[0]) {
		return leave()
	}
	t, err := time.Parse(time.RFC3339, args[0].Str())
	if err != nil || t.Before(minTime) || t.After(maxTime) {
		return leave()
	}
	return value.Int(int(t.UnixNano())), true
}

// maxTimeText is how long a text of a time, of a duration or of a layout is that natives take.
const maxTimeText = 64

func isTimeText(v value.Value) bool { return v.Kind() == value.String && v.Len() <= maxTimeText }

// parseDuration leaves days, weeks and years to OPA.
func parseDuration(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isTimeText(args[0]) || strings.ContainsAny(args[0].Str(), "dwy") {
		return leave()
	}
	d, err := time.ParseDuration(args[0].Str())
	if err != nil {
		return leave()
	}
	return value.Int(int(d)), true
}

// formatTime writes a time in UTC by a layout that is given, and is not a name.
func formatTime(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if args[0].Kind() != value.Array || args[0].Len() != 3 {
		return leave()
	}
	list := args[0].Elems()
	if list[0].Kind() != value.Integer || list[1].Kind() != value.String || !isTimeText(list[2]) {
		return leave()
	}
	zone, layout := list[1].Str(), list[2].Str()
	if zone != "" && zone != "UTC" || !strings.HasPrefix(layout, "2006") { // no name begins so
		return leave()
	}
	return value.Text(time.Unix(0, int64(list[0].Int())).UTC().Format(layout)), true
}
