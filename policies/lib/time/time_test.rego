package federator.lib.time_test

import data.federator.lib.time as lib

at(instants) := {"passed": {instant: true | some instant in instants}}

test_older if {
	lib.older("2026-01-01T00:00:00Z", "720h") with data.fleet as at(["2026-01-31T00:00:00Z"])
	not lib.older("2026-01-01T00:00:00Z", "720h") with data.fleet as at(["2026-01-30T23:59:59Z"])
	lib.older("2026-01-01T00:00:00+02:00", "1h30m5s") with data.fleet as at(["2025-12-31T23:30:05Z"])
}

test_expires_within if {
	lib.expires_within("2026-12-31T00:00:00Z", lib.days(21)) with data.fleet as at(["2026-12-10T00:00:00Z"])
	not lib.expires_within("2026-12-31T00:00:00Z", "504h") with data.fleet as at([])
	lib.expires_within("2026-12-31T00:00:00Z", "0h") with data.fleet as at(["2026-12-31T00:00:00Z"])
}

test_rounds_up if {
	lib.older("2026-01-01T00:00:00.000000001Z", "1s") with data.fleet as at(["2026-01-01T00:00:02Z"])
	not lib.older("2026-01-01T00:00:00.9Z", "1s") with data.fleet as at(["2026-01-01T00:00:01Z"])
	lib.expires_within("2026-01-01T00:00:10.5Z", "10s") with data.fleet as at(["2026-01-01T00:00:01Z"])
}

test_no_times if {
	every x in ["", "soon", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", null, 1, true, [], {}] {
		not lib.older(x, "1h")
		not lib.expires_within(x, "1h")
	}
}
