# Package federator.lib.time asks how old something is, and how soon it ends. What it asks is
# recorded: a policy is evaluated again when the answer changes.
package federator.lib.time

# older is true from the time on at which something that was created then has this age, such as
# "720h". It is undefined before, and for what is no time; an age that is no duration is an error.
older(created, age) if data.fleet.passed[instant(nanoseconds(created) + duration(age))]

# expires_within is true from the time on at which this is left until then, such as "504h". It is
# undefined before, and for what is no time; what is no duration is an error.
expires_within(then, left) if data.fleet.passed[instant(nanoseconds(then) - duration(left))]

# days is a duration of so many days.
days(n) := sprintf("%dh", [n * 24])

# nanoseconds is undefined for what is no time in RFC 3339 of these centuries.
nanoseconds(text) := time.parse_rfc3339_ns(text) if {
	is_string(text)
	regex.match(`^(19[7-9]|20[0-9]|21[0-9])[0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`, text)
}

# duration is an error for what has another unit than h, m or s, or none, or is negative.
duration(text) := time.parse_duration_ns(text) if {
	is_string(text)
	regex.match(`^([0-9]+[hms])+$`, text)
} else := time.parse_duration_ns(sprintf("%v is not a duration such as 720h, 90m or 30s", [text]))

# instant is the key of a time, in whole seconds: the first that is not before it.
instant(ns) := time.format([ns + ((1000000000 - (ns % 1000000000)) % 1000000000), "UTC", "2006-01-02T15:04:05Z"])
