# Sidekiq: two worker processes with ten threads each, scheduled jobs, retries, dead jobs, and the
# script by which its scheduler takes what is due.
require_relative "jobs"
require "sidekiq/api"

URL = "redis://127.0.0.1:#{ENV.fetch("PORT")}/3"
Redis.silence_deprecations = true
Sidekiq.configure_client { |config| config.redis = { url: URL } }

def check(name, given, expected)
  raise "#{name}: #{given.inspect} is not #{expected.inspect}" unless given == expected

  puts "ok sidekiq #{name}"
end

def till(name, seconds = 30)
  stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  until yield
    raise "#{name}: not within #{seconds} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > stop

    sleep 0.05
  end
end

def get(key) = Sidekiq.redis { |redis| redis.get(key) }

def start_worker
  spawn("sidekiq", "-r", File.join(__dir__, "jobs.rb"), "-c", "10", "-q", "default", "-t", "1")
end

def work
  Sidekiq::Client.push_bulk("class" => Count, "args" => Array.new(1000) { ["runs"] })
  till("bulk") { get("runs") == "1000" }
  check "every job ran once", [get("runs"), Sidekiq::Queue.new.size], ["1000", 0]

  begun = Time.now
  20.times { Count.perform_in(1, "late") }
  check "scheduled", Sidekiq::ScheduledSet.new.size, 20
  till("scheduled jobs") { get("late") == "20" }
  check "not early", Time.now - begun >= 1, true
  check "each scheduled job ran once", [get("late"), Sidekiq::ScheduledSet.new.size], ["20", 0]

  Flaky.perform_async("tries")
  till("retry") { get("tries") == "2" }
  till("retries are over") { Sidekiq::RetrySet.new.size.zero? }
  check "retry", get("tries"), "2"
  Broken.perform_async
  till("dead job") { Sidekiq::DeadSet.new.size == 1 }
  check "dead job", Sidekiq::DeadSet.new.first["error_message"], "no way"
  # Each process reports every five seconds.
  till("statistics") { Sidekiq::Stats.new.then { |stats| [stats.processed, stats.failed] == [1023, 2] } }
  check "processes", Sidekiq::ProcessSet.new.size, 2
end

Sidekiq.redis(&:flushall)
workers = [start_worker, start_worker]
begin
  till("workers") { Sidekiq::ProcessSet.new.size == 2 }
  work
ensure
  workers.each { |worker| Process.kill("TERM", worker) }
  workers.each { |worker| Process.wait(worker) }
end
check "processes sign off", Sidekiq::ProcessSet.new.size, 0
Sidekiq.redis(&:flushall)
