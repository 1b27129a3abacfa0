using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Peeklock.Sdk
{
    /// <summary>
    /// Runs the scenarios against a broker of their own: `BROKER [PART OF A TITLE]...`. Ends with a line `ok N scenarios`, or
    /// reports each failure.
    /// </summary>
    static class Program
    {
        /// <summary>Scenarios that run at the same time.</summary>
        const int Width = 8;

        static readonly TimeSpan ScenarioMax = TimeSpan.FromSeconds(60);

        static int Main(string[] arguments)
        {
            return RunAll(arguments).GetAwaiter().GetResult();
        }

        static async Task<int> RunAll(string[] arguments)
        {
            ThreadPool.SetMinThreads(32, 32);
            var scenarios = new Scenarios();
            Sending.Add(scenarios);
            Receiving.Add(scenarios);
            Sessions.Add(scenarios);
            Transactions.Add(scenarios);
            Topics.Add(scenarios);
            Administration.Add(scenarios);
            Processors.Add(scenarios);
            Connections.Add(scenarios);
            var words = arguments.Skip(1).ToList();
            var chosen = scenarios.All.Where(one => words.All(word => one.Title.Contains(word))).ToList();
            var place = Path.Combine(Path.GetTempPath(), "peeklock-sdk-dotnet-" + Guid.NewGuid().ToString("N").Substring(0, 8));
            Connections.Program = arguments[0];
            Connections.Place = place;
            var failed = new List<string>();
            using (var broker = new Broker(arguments[0], Path.Combine(place, "broker")))
            using (var places = new SemaphoreSlim(Width))
            {
                await Task.WhenAll(chosen.Select(async one =>
                {
                    await places.WaitAsync();
                    try
                    {
                        await Run(one, broker, failed);
                    }
                    finally
                    {
                        places.Release();
                    }
                }));
                if (broker.Log.Contains("panicked"))
                {
                    Console.WriteLine("--- the broker panicked\n" + broker.Log);
                    failed.Add("log");
                }
            }
            if (failed.Count > 0)
            {
                Console.WriteLine($"{failed.Count} of {chosen.Count} scenarios failed; the log of the broker is in {place}");
                return 1;
            }
            Directory.Delete(place, recursive: true);
            Console.WriteLine($"ok {chosen.Count} scenarios");
            return 0;
        }

        static async Task Run(Scenario scenario, Broker broker, List<string> failed)
        {
            var clock = Stopwatch.StartNew();
            string told = null;
            var world = new World(broker);
            try
            {
                var body = Task.Run(() => scenario.Body(world));
                if (await Task.WhenAny(body, Task.Delay(ScenarioMax)) != body)
                {
                    throw new Failed($"did not end within {ScenarioMax.TotalSeconds} s");
                }
                await body;
            }
            catch (Exception error)
            {
                told = error is Failed ? error.Message : error.ToString();
            }
            await Task.WhenAny(world.Close(), Task.Delay(TimeSpan.FromSeconds(10)));
            lock (failed)
            {
                Console.WriteLine($"{scenario.Title} {clock.Elapsed.TotalSeconds:0.0} s");
                if (told != null)
                {
                    Console.WriteLine($"--- {scenario.Title}\n{told}");
                    failed.Add(scenario.Title);
                }
            }
        }
    }
}
