# The jobs that the worker processes of check.rb run.
require "sidekiq"

Redis.silence_deprecations = true
Sidekiq.configure_server do |config|
  config.redis = { url: "redis://127.0.0.1:#{ENV.fetch("PORT")}/3" }
  config.average_scheduled_poll_interval = 1
  config.logger.level = Logger::FATAL
end

class Count
  include Sidekiq::Worker

  def perform(key)
    Sidekiq.redis { |redis| redis.incr(key) }
  end
end

class Flaky
  include Sidekiq::Worker
  sidekiq_options retry: 5
  sidekiq_retry_in { 1 }

  def perform(key)
    tries = Sidekiq.redis { |redis| redis.incr(key) }
    raise "again" if tries < 2
  end
end

class Broken
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform
    raise "no way"
  end
end
